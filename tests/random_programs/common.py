import array
import builtins
import collections
import contextlib
import dataclasses
import decimal
import enum
import fractions
import functools
import gc
import itertools
import math
import operator
import sys
import types
import weakref

import this_helper
import torch
from torch import nn


@dataclasses.dataclass
class Out:
    first: object
    second: object = None


Pair = collections.namedtuple("Pair", "first second")


class Config:
    kinds = {"a": 1.5, "b": 0.5}

    def __init__(self, alpha, name="plain"):
        self.alpha, self.name, self.inner = alpha, name, {"b": 0.5, "list": [1.0, 2.0]}

    @property
    def doubled(self):
        return self.alpha * 2

    def scaled(self, value=0.5):
        return self.alpha * value


class Color(enum.Enum):
    RED = 1.25
    BLUE = 0.75


class Cache:
    def __init__(self):
        self.kept, self.layers, self.calls = None, [], 0

    def __repr__(self):
        return f"Cache({self.calls})"


class Slotted:
    __slots__ = ("factor",)


class Scale:
    def __init__(self, value):
        self.value = value

    def __call__(self, x):
        return x * self.value

    def __getitem__(self, key):
        return self.value + len(key)

    def __len__(self):
        return int(self.value * 8)

    def __bool__(self):
        return self.value > 1

    def __float__(self):
        return float(self.value)

    def __eq__(self, other):
        return self.value == getattr(other, "value", other)

    __hash__ = None


class Half(Scale):
    def __call__(self, x):
        return super().__call__(x) * 0.5


class Anything:
    """Answers for names that it does not have."""

    def __init__(self):
        self.default = 0.5

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.default + len(name)


class Field:
    """A descriptor."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner):
        return self if instance is None else instance.__dict__.get(self.name, 0.75)

    def __set__(self, instance, value):
        instance.__dict__[self.name] = value


class Meta(type):
    level = 0.5

    @property
    def of_meta(cls):
        return cls.level * 2


class Described(metaclass=Meta):
    field = Field()


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: float = 1.5
    items: tuple = (0.5, 1.0)


@contextlib.contextmanager
def doubled_for_a_while():
    global G_FLOAT
    before, G_FLOAT = G_FLOAT, G_FLOAT * 2
    try:
        yield
    finally:
        G_FLOAT = before


@functools.lru_cache(maxsize=None)
def remembered(value):
    return value * G_FLOAT


def decorated(function):
    @functools.wraps(function)
    def inner(x, *more):
        return function(x, *more) * inner.factor

    inner.factor = 1.25
    return inner


@decorated
def wrapped(x):
    return x + 0.5


def with_keyword(x, *, bias=0.5, table={"v": 0.25}):
    return x + bias + table["v"]


def deep(x, depth):
    return x if depth == 0 else deep(x + 0.125, depth - 1)


def raises_at(x, limit):
    if limit > 1:
        raise ValueError(limit)
    return x * limit


def counting():
    number = 0
    while True:
        number += 1
        yield number / 8


def vector():
    return (torch.rand(8) - 0.5).cuda()


def times(x, factor=1.5):
    return x * factor


def plus(x, amount=0.25):
    return x + amount


def on_its_own(x):
    return torch.relu(x + G_FLOAT)


def closing_over(value):
    held = [value]

    def read():
        return value + held[0]

    def change(new):
        nonlocal value
        value = new

    return read, change, held


G_FLOAT, G_INT, G_FLAG, G_NAME = 0.75, 3, True, "b"
G_LIST, G_DICT, G_TUPLE = [0.5, 1.5], {"k": 1.25, "b": 2.0, "n": 0}, (1.0, (0.5, "x"))
G_TENSOR, G_TENSORS = vector(), {"t": vector(), "u": vector()}
G_CONFIG, G_SLOTTED, G_DEQUE = Config(0.5), Slotted(), collections.deque([0.5, 0.25], maxlen=3)
G_SLOTTED.factor = 1.25
G_HELPER, G_PARTIAL, G_COLOR = times, functools.partial(times, factor=0.5), Color.RED
READ, CHANGE, HELD = closing_over(0.5)
G_SET = frozenset({1.0, 2.0})
G_SCALE, G_ANY, G_DESCRIBED, G_FROZEN = Scale(1.25), Anything(), Described(), Frozen()
G_ORDERED = collections.OrderedDict(a=0.5, b=1.5)
G_DEFAULT, G_CHAIN = collections.defaultdict(lambda: 0.5, z=1.0), collections.ChainMap({"a": 1.0}, {"b": 2.0})
G_ARRAY, G_BYTES, G_SETS = array.array("d", [0.5, 1.0]), bytearray(b""), {0.5, 1.5}
G_FRACTION, G_DECIMAL, G_COMPLEX = fractions.Fraction(3, 4), decimal.Decimal("0.5"), complex(0.5, 1.0)
G_NAMESPACE, G_MAPPING = types.SimpleNamespace(a=0.5, b=[1.0]), types.MappingProxyType({"a": 0.25})
G_CYCLE, G_COUNTER, G_GENERATOR = itertools.cycle([0.5, 1.0]), itertools.count(1), counting()
G_WEAK, G_METHOD, G_GETTER = weakref.ref(G_SCALE), G_CONFIG.scaled, operator.itemgetter("k")
G_VIEW, G_NESTED = G_TENSOR[2:6], {"list": [{"t": (vector(), 0.5)}]}
G_NAN, G_ZERO = float("nan"), 0.0
HOOK_FACTOR = 1.0
LINEAR, LEN, SUM = nn.Linear.forward, len, sum


def replaces_output(module, inputs, output):
    return output * HOOK_FACTOR


def doubles(self, x):
    return x * 2 + self.a0


class Block(nn.Module):
    c, table = 1.25, {"x": 0.5}

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.a0, self.a1, self.flag, self.name, self.count = 0.5, 2, False, "b", 0
        self.lst, self.dct, self.fn = [1.0, 0.5], {"k": 1.5, "n": 0}, plus
        self.config, self.tensors, self.last = Config(0.25), [vector(), vector()], None
        self.register_buffer("buf", torch.rand(8))
        self.weight = nn.Parameter(torch.rand(8))

    @property
    def prop(self):
        return self.a0 + self.a1

    @staticmethod
    def static(x):
        return x * 0.5

    @classmethod
    def of_class(cls):
        return cls.c

    def get_vector(self):
        return self.buf if self.name == "b" else self.weight

    def forward(self, x):
        return self.lin(x) * self.a0


class Other(Block):
    c = 0.375

    def forward(self, x):
        return super().forward(x) + self.a1
