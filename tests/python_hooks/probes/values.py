"""Makers of state: each, called again, gives the same; any two give different state."""

import collections
import enum
import functools
import logging
import math
import os
import sys
import types
import typing

T = typing.TypeVar("T")


class Plain:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slots:
    __slots__ = ("a", "b")


class MoreSlots(Slots):
    __slots__ = ("c", "__dict__")


class Items(list):
    pass


class Names(str):
    pass


class Number(int):
    pass


class Record(collections.namedtuple("Record", "x y")):
    pass


class Ordered(collections.OrderedDict):
    pass


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Level(enum.IntEnum):
    LOW = 1


class Bits(enum.Flag):
    A = 1
    B = 2


class Box(typing.Generic[T]):
    def __init__(self, content):
        self.content = content


class Shape(typing.Protocol):
    a: int

    def area(self):
        return 1


class Square(Shape):
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class WithDefault:
    table = {"a": [1]}
    __missing = object()

    def method(self, x=[]):
        return x

    @property
    def prop(self):
        return 1

    @staticmethod
    def static(x):
        return x


def slots(cls, **values):
    made = cls()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def closure(value):
    return lambda: value


def with_attribute(function, **attributes):
    function.__dict__.update(attributes)
    return function


def aliased(twice):
    x = [1]
    return [x, x if twice else [1]]


def cyclic(length):
    items = [0]
    for _ in range(length):
        items = [items]
    last = items
    while last[0] != 0:
        last = last[0]
    last[0] = items
    return items


def moved(name):
    made = collections.OrderedDict((letter, 1) for letter in "abc")
    made.move_to_end(name)
    return made


def removed(letter):
    made = set("abcdefgh")
    made.discard(letter)
    return made


def add(a, b, c=1):
    return a


def subtract(a, b, c=1):
    return a


# Each maker, called again and again, gives state that cannot be told apart; any two makers give different state.
MAKERS = [
    lambda: None,
    lambda: Ellipsis,
    lambda: True,
    lambda: False,
    lambda: 0,
    lambda: 1,
    lambda: -1,
    lambda: 2**40,
    lambda: 2**63,
    lambda: 2**200,
    lambda: -(2**200),
    lambda: 1.0,
    lambda: 0.0,
    lambda: -0.0,
    lambda: math.nan,
    lambda: math.inf,
    lambda: 1 + 0j,
    lambda: complex(1.0, -0.0),
    lambda: "",
    lambda: "a",
    lambda: "b",
    lambda: b"a",
    lambda: b"",
    lambda: "\xe4",
    lambda: "\u0101",
    lambda: "\U0001f347",
    lambda: "\udc80",
    lambda: "\udc81",
    lambda: "a\0",
    lambda: range(3),
    lambda: range(0, 3, 2),
    lambda: range(1, 3),
    lambda: list[int],
    lambda: list[str],
    lambda: tuple[int, ...],
    lambda: dict[str, list[int]],
    lambda: slice(3),
    lambda: slice(0, 3),
    lambda: slice(0, 3, 1.0),
    lambda: (),
    lambda: (1,),
    lambda: (1.0,),
    lambda: (True,),
    lambda: ((1,),),
    lambda: (1, 2),
    lambda: (2, 1),
    lambda: [],
    lambda: [1],
    lambda: [[1]],
    lambda: [1, [2]],
    lambda: [[1], 2],
    lambda: aliased(False),
    lambda: aliased(True),
    lambda: cyclic(1),
    lambda: cyclic(2),
    lambda: {},
    lambda: {"a": 1},
    lambda: {"a": 1.0},
    lambda: {"a": True},
    lambda: {"b": 1},
    lambda: {"a": 1, "b": 2},
    lambda: {"b": 2, "a": 1},
    lambda: {"a": {"b": 2, "c": 3}},
    lambda: {"a": {"c": 3, "b": 2}},
    lambda: {1: 1},
    lambda: {True: 1},
    lambda: {(1, 2): 1},
    lambda: set(),
    lambda: {1},
    lambda: {2},
    lambda: {1, 2},
    lambda: removed("a"),
    lambda: removed("b"),
    lambda: frozenset(),
    lambda: frozenset({1}),
    lambda: collections.OrderedDict(),
    lambda: collections.OrderedDict(a=1),
    lambda: collections.OrderedDict(a=1, b=1, c=1),
    lambda: moved("a"),
    lambda: moved("b"),
    lambda: with_attribute(collections.OrderedDict(a=1), extra=1),
    lambda: collections.defaultdict(list),
    lambda: collections.defaultdict(dict),
    lambda: collections.defaultdict(None),
    lambda: collections.defaultdict(list, a=1),
    lambda: collections.deque(),
    lambda: collections.deque([1, 2]),
    lambda: collections.deque([2, 1]),
    lambda: collections.deque([1, 2], 5),
    lambda: collections.deque([1, 2], 6),
    lambda: types.MappingProxyType({}),
    lambda: types.MappingProxyType({"a": 1}),
    lambda: types.MappingProxyType({"a": 2}),
    lambda: types.MappingProxyType(collections.OrderedDict(a=1)),
    lambda: {"a": 1}.keys(),
    lambda: {"a": 1}.values(),
    lambda: {"a": 1}.items(),
    lambda: {"a": 2}.items(),
    lambda: Plain(),
    lambda: Plain(a=1),
    lambda: Plain(a=2),
    lambda: Plain(b=1),
    lambda: Plain(a=1, b=2),
    lambda: Plain(b=2, a=1),
    lambda: Plain(a=[1]),
    lambda: slots(Slots),
    lambda: slots(Slots, a=1),
    lambda: slots(Slots, b=1),
    lambda: slots(MoreSlots, b=1),
    lambda: slots(MoreSlots, b=1, c=2),
    lambda: slots(MoreSlots, b=1, d=2),
    lambda: Items(),
    lambda: Items([1]),
    lambda: with_attribute(Items([1]), a=1),
    lambda: Names("a"),
    lambda: Names("b"),
    lambda: Number(1),
    lambda: Number(2**100),
    lambda: Box(1),
    lambda: Box(2),
    lambda: Box[int](1),
    lambda: Square(),
    lambda: Square(a=1),
    lambda: Box,
    lambda: Box[int],
    lambda: typing.Optional[int],
    lambda: typing.Dict[str, int],
    lambda: types.SimpleNamespace(),
    lambda: types.SimpleNamespace(a=1),
    lambda: functools.cached_property(add),
    lambda: functools.cached_property(subtract),
    lambda: logging.getLogger("one"),
    lambda: logging.getLogger("two"),
    lambda: Record(1, 2),
    lambda: Record(2, 1),
    lambda: os.terminal_size((1, 2)),
    lambda: os.terminal_size((2, 1)),
    lambda: os.times_result(range(5)),
    lambda: os.uname_result(range(5)),
    lambda: os.terminal_size,
    lambda: Ordered(a=1),
    lambda: Color.RED,
    lambda: Color.GREEN,
    lambda: Level.LOW,
    lambda: Bits.A,
    lambda: Bits.A | Bits.B,
    lambda: Color,
    lambda: Plain,
    lambda: int,
    lambda: float,
    lambda: math,
    lambda: sys,
    lambda: len,
    lambda: abs,
    lambda: [].append,
    lambda: [1].append,
    lambda: list.append,
    lambda: list.pop,
    lambda: add,
    lambda: subtract,
    lambda: closure(1),
    lambda: closure(2),
    lambda: closure([1]),
    lambda: with_attribute(closure(1), note=1),
    lambda: types.FunctionType(add.__code__, globals(), "f", (5,)),
    lambda: types.FunctionType(add.__code__, globals(), "f", (6,)),
    lambda: functools.wraps(add)(closure(3)),
    lambda: functools.partial(add, 1),
    lambda: functools.partial(add, 2),
    lambda: functools.partial(subtract, 1),
    lambda: functools.partial(add, b=1),
    lambda: functools.partial(add, c=1),
    lambda: with_attribute(functools.partial(add, 1), note=1),
    lambda: Plain(a=1).__init__,
    lambda: Plain(a=2).__init__,
    lambda: closure(Plain(a=1)).__closure__[0],
    lambda: types.CellType(),
    lambda: staticmethod(add),
    lambda: classmethod(add),
    lambda: property(add),
    lambda: property(add, subtract),
    lambda: WithDefault(),
]
if hasattr(type, "__or__"):
    MAKERS += [lambda: int | str, lambda: int | None, lambda: list[int] | None]
