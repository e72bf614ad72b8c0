"""Classes and values that the tests' calls make, change and return."""
import collections
import ctypes
import dataclasses
import enum
import os

from outcome import SAID, aligned, torch

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Plain:
    x: object
    y: object = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: object
    note: str = "frozen"


class Slotted:
    __slots__ = ("x", "y")

    def __init__(self, x):
        self.x = x


class MoreSlotted(Slotted):
    __slots__ = ("z", "__dict__", "__weakref__")


@dataclasses.dataclass(frozen=True)
class FrozenSlotted:
    __slots__ = ("x", "note")
    x: object
    note: object


class Loud:
    """Runs code wherever it can: to make or change one must not."""

    def __new__(cls, *args):
        SAID.append("new")
        return super().__new__(cls)

    def __init__(self, x):
        self.__dict__["x"] = x

    def __setattr__(self, name, value):
        SAID.append("setattr")
        self.__dict__[name] = value

    def __getattribute__(self, name):
        if name == "x":
            SAID.append("getattribute")
        return super().__getattribute__(name)

    @property
    def hidden(self):
        SAID.append("property")
        return 1

    @hidden.setter
    def hidden(self, value):
        SAID.append("setter")


class LoudList(list):
    def __setitem__(self, index, value):
        SAID.append("setitem")
        super().__setitem__(index, value)

    def append(self, value):
        SAID.append("append")
        super().append(value)

    def __len__(self):
        SAID.append("len")
        return super().__len__()

    def __iter__(self):
        SAID.append("iter")
        return super().__iter__()


class LoudDict(dict):
    def __setitem__(self, key, value):
        SAID.append("setitem")
        super().__setitem__(key, value)

    def items(self):
        SAID.append("items")
        return super().items()

    def __iter__(self):
        SAID.append("iter")
        return super().__iter__()


class OutputLike(collections.OrderedDict):
    """As transformers' ModelOutput: a dataclass in an OrderedDict, whose entries and attributes say the same."""

    def __init__(self, logits, cache=None):
        super().__init__()
        self["logits"] = logits
        if cache is not None:
            self["cache"] = cache
        super().__setattr__("empty", None)

    def __setitem__(self, key, value):
        SAID.append("setitem")
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __setattr__(self, name, value):
        SAID.append("setattr")
        super().__setattr__(name, value)


class NamedTuple(tuple):
    pass


class Color(enum.Enum):
    RED = 1


class Holder:
    """A KV cache's layer: attributes that calls replace."""

    def __init__(self):
        self.keys = None
        self.values = None
        self.initialized = False


def named(**attributes):
    out = Holder()
    vars(out).update(attributes)
    return out


class Cache:
    def __init__(self, layers=2):
        self.layers = [Holder() for _ in range(layers)]
        self.seen = 0

    def update(self, x, layer):
        holder = self.layers[layer]
        holder.keys = x + 1 if holder.keys is None else holder.keys + x
        holder.values = x * 2 if holder.values is None else holder.values * x
        holder.initialized = True


if torch:
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
            self.register_buffer("table", torch.arange(4.0))
            self.note = [1, 2]

    MODULE = Module().requires_grad_(False)
else:
    MODULE = Plain(1, [1, 2])


def x():
    return aligned(torch.arange(1.0, 7.0).reshape(2, 3)) if torch else 1000


def helper(value):
    return value


def without_items(x):
    make = ctypes.pythonapi.PyStructSequence_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object]
    return make(os.terminal_size)
