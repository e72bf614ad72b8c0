"""A model with one of everything, and every kind of change to it, each with its undoing."""

import collections
import enum
import functools
import gc
import logging
import sys
import types
import weakref


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Slots:
    __slots__ = ("a", "b", "__weakref__")

    def __init__(self, a, b):
        self.a, self.b = a, b


class Pair(tuple):
    pass


class Part:
    def __init__(self, value):
        self.value = value

    def method(self):
        return self.value


def add(a, b=1):
    return a + b


def other(a, b=1):
    return a - b


def closure(value):
    def read():
        return value

    return read


def fresh_classes():
    class Base:
        shared = [1]
        number = 1

        def call(self, x=[0]):
            return x

        @property
        def prop(self):
            return 1

        @staticmethod
        def static():
            return 1

    class Model(Base):
        pass

    return Base, Model


class Case:
    """A model with one of everything; with a queue, which shows no changes, so that guards walk each time."""

    def __init__(self, queue=False):
        self.Base, self.Model = fresh_classes()
        m = self.model = self.Model()
        m.training = True
        m.scale = 1.5
        m.text = "text"
        m.huge = 2**100
        m.items = [1000, [2000], "x", (3, [4])]
        m.table = {"a": {"b": 2, "c": [3]}, "d": 4}
        m.ordered = collections.OrderedDict([("x", 1), ("y", 2), ("z", 3)])
        m.default = collections.defaultdict(list, k=[1])
        if queue:
            m.queue = collections.deque([1, 2, 3])
        m.names = set()
        m.names.update(["one", "two", "three"])
        m.fixed = frozenset({1, 2})
        m.slots = Slots(5000, [6000])
        m.part = Part([7])
        m.parts = [Part(1), Part(2)]
        m.shared = [m.part.value, m.part.value]
        m.color = Color.RED
        m.function = add
        m.closure = closure(8000)
        m.partial = functools.partial(add, 9000, b=[1])
        m.bound = m.part.method
        m.kind = Part
        m.pair = Pair(([1],))
        m.view = slice(1, [2], 3)
        m.space = types.SimpleNamespace(a=[1])
        self.behind = {"a": [1], "b": 2}
        m.proxy = types.MappingProxyType(self.behind)
        self.viewed = {"a": [1]}
        m.dict_view = self.viewed.items()
        m.logger = logging.getLogger("cases")
        m.weak = weakref.ref(m.part)
        m.module = sys
        m.parent = m


def set_attribute(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, before)


def set_item(owner, key, value):
    before = owner[key]
    owner[key] = value

    def undo():
        owner[key] = before

    return undo


def call(change, undo):
    change()
    return undo


def take_out_and_in(table, key):
    """The same content in another order."""
    value = table.pop(key)
    table[key] = value

    def undo():
        for name in [k for k in table if k != key]:
            table[name] = table.pop(name)

    return undo


def swap_dict(m):
    before = m.__dict__
    m.__dict__ = dict(before, training=False)
    return lambda: setattr(m, "__dict__", before)


def swap_class(c):
    before = type(c.model)
    c.model.__class__ = type("Model", (c.Base,), {})
    return lambda: setattr(c.model, "__class__", before)


def patch_global_class(name, value):
    before = Part.__dict__.get(name)
    setattr(Part, name, value)
    return lambda: setattr(Part, name, before) if before is not None else delattr(Part, name)


CHANGES = {
    "flag flipped": lambda c: set_attribute(c.model, "training", False),
    "1 for True": lambda c: set_attribute(c.model, "training", 1),
    "1.0 for True": lambda c: set_attribute(c.model, "training", 1.0),
    "float": lambda c: set_attribute(c.model, "scale", -0.0),
    "nan": lambda c: set_attribute(c.model, "scale", float("nan")),
    "text": lambda c: set_attribute(c.model, "text", "texts"),
    "huge int": lambda c: set_attribute(c.model, "huge", 2**100 + 1),
    "attribute added": lambda c: call(lambda: setattr(c.model, "extra", 1), lambda: delattr(c.model, "extra")),
    "attribute deleted": lambda c: call(
        lambda: c.model.__dict__.popitem(), lambda: setattr(c.model, "parent", c.model)
    ),
    "attribute by object.__setattr__": lambda c: call(
        lambda: object.__setattr__(c.model, "training", 0), lambda: setattr(c.model, "training", True)
    ),
    "attribute by vars": lambda c: set_item(vars(c.model), "training", 0),
    "dict exchanged": lambda c: swap_dict(c.model),
    "class exchanged": swap_class,
    "list item": lambda c: set_item(c.model.items, 0, 1001),
    "list item of another type": lambda c: set_item(c.model.items, 0, 1000.0),
    "nested list item": lambda c: set_item(c.model.items[1], 0, 2001),
    "list in a tuple": lambda c: set_item(c.model.items[3][1], 0, 5),
    "list appended": lambda c: call(lambda: c.model.items.append(1), lambda: c.model.items.pop()),
    "list order": lambda c: call(c.model.items.reverse, c.model.items.reverse),
    "nested dict": lambda c: set_item(c.model.table["a"], "b", 3),
    "nested dict order": lambda c: take_out_and_in(c.model.table["a"], "b"),
    "dict order": lambda c: take_out_and_in(c.model.table, "a"),
    "dict update": lambda c: call(lambda: c.model.table.update(e=1), lambda: c.model.table.pop("e")),
    "list deep in dicts": lambda c: call(
        lambda: c.model.table["a"]["c"].append(1), lambda: c.model.table["a"]["c"].pop()
    ),
    "ordered value": lambda c: set_item(c.model.ordered, "x", 2),
    "order": lambda c: call(
        lambda: c.model.ordered.move_to_end("x"), lambda: c.model.ordered.move_to_end("x", last=False)
    ),
    "attribute of an ordered dict": lambda c: call(
        lambda: setattr(c.model.ordered, "note", 1), lambda: delattr(c.model.ordered, "note")
    ),
    "default factory": lambda c: set_attribute(c.model.default, "default_factory", dict),
    "default made": lambda c: call(lambda: c.model.default["new"], lambda: c.model.default.pop("new")),
    "deque item": lambda c: set_item(c.model.queue, 1, 5),
    "deque turned": lambda c: call(lambda: c.model.queue.rotate(1), lambda: c.model.queue.rotate(-1)),
    "set added": lambda c: call(lambda: c.model.names.add("four"), lambda: c.model.names.discard("four")),
    # Put back alone it might stand elsewhere in the order.
    "set removed": lambda c: call(
        lambda: c.model.names.discard("two"),
        lambda: (c.model.names.clear(), c.model.names.update(["one", "two", "three"])),
    ),
    "frozenset": lambda c: set_attribute(c.model, "fixed", frozenset({1, 3})),
    "slot": lambda c: set_attribute(c.model.slots, "a", 5001),
    "slot deleted": lambda c: call(lambda: delattr(c.model.slots, "a"), lambda: setattr(c.model.slots, "a", 5000)),
    "list in a slot": lambda c: set_item(c.model.slots.b, 0, 6001),
    "part": lambda c: set_attribute(c.model.part, "value", [7, 8]),
    "part in a list": lambda c: set_attribute(c.model.parts[1], "value", 3),
    "parts exchanged": lambda c: call(c.model.parts.reverse, c.model.parts.reverse),
    "alias for an equal copy": lambda c: set_item(c.model.shared, 1, [7]),
    "enum": lambda c: set_attribute(c.model, "color", Color.GREEN),
    "function": lambda c: set_attribute(c.model, "function", other),
    "code of a function": lambda c: set_attribute(c.model.function, "__code__", other.__code__),
    "defaults of a function": lambda c: set_attribute(c.model.function, "__defaults__", (2,)),
    "attribute of a function": lambda c: call(lambda: setattr(add, "note", 1), lambda: delattr(add, "note")),
    "cell": lambda c: set_attribute(c.model.closure.__closure__[0], "cell_contents", 8001),
    "partial's argument": lambda c: call(
        lambda: c.model.partial.__setstate__((add, (9001,), {"b": [1]}, {})),
        lambda: c.model.partial.__setstate__((add, (9000,), {"b": [1]}, {})),
    ),
    "partial's keyword": lambda c: set_item(c.model.partial.keywords, "b", 2),
    "partial's keyword's item": lambda c: set_item(c.model.partial.keywords["b"], 0, 2),
    "self of a bound method": lambda c: set_attribute(c.model, "bound", Part([7]).method),
    "class as a value": lambda c: set_attribute(c.model, "kind", Slots),
    "item of a tuple's class": lambda c: set_item(c.model.pair[0], 0, 2),
    "attribute of a tuple's class": lambda c: call(
        lambda: setattr(c.model.pair, "n", 1), lambda: delattr(c.model.pair, "n")
    ),
    "list in a slice": lambda c: set_item(c.model.view.stop, 0, 3),
    "weak reference to another": lambda c: set_attribute(c.model, "weak", weakref.ref(c.model.parts[0])),
    "namespace": lambda c: set_attribute(c.model.space, "a", 2),
    "list in a namespace": lambda c: set_item(c.model.space.a, 0, 2),
    "read-only view": lambda c: set_attribute(c.model, "proxy", types.MappingProxyType({"a": [1], "b": 3})),
    "equal read-only view of another type": lambda c: set_attribute(c.model, "proxy", c.behind),
    "behind a read-only view": lambda c: set_item(c.behind, "b", 3),
    "deep behind a read-only view": lambda c: set_item(c.behind["a"], 0, 2),
    "behind a dictionary's view": lambda c: set_item(c.viewed, "a", 3),
    "another view of the dictionary": lambda c: set_attribute(c.model, "dict_view", c.viewed.values()),
    "logger": lambda c: set_attribute(c.model, "logger", logging.getLogger("other")),
    "module": lambda c: set_attribute(c.model, "module", gc),
    "attribute of the class": lambda c: call(
        lambda: setattr(c.Model, "number", 2), lambda: delattr(c.Model, "number")
    ),
    "attribute of the base": lambda c: set_attribute(c.Base, "number", 2),
    "list in the base": lambda c: call(lambda: c.Base.shared.append(1), lambda: c.Base.shared.pop()),
    "method patched": lambda c: set_attribute(c.Base, "call", other),
    "method's code": lambda c: set_attribute(c.Base.call, "__code__", other.__code__),
    "method's default": lambda c: call(
        lambda: c.Base.call.__defaults__[0].append(1), lambda: c.Base.call.__defaults__[0].pop()
    ),
    "property patched": lambda c: call(
        lambda p=c.Base.__dict__["prop"]: setattr(c.Base, "prop", property(add)),
        lambda p=c.Base.__dict__["prop"]: setattr(c.Base, "prop", p),
    ),
    "static method patched": lambda c: call(
        lambda p=c.Base.__dict__["static"]: setattr(c.Base, "static", staticmethod(add)),
        lambda p=c.Base.__dict__["static"]: setattr(c.Base, "static", p),
    ),
    "method on the instance": lambda c: call(lambda: setattr(c.model, "call", add), lambda: delattr(c.model, "call")),
    "class of a part patched": lambda c: patch_global_class("method", other),
    "attribute of a part's class": lambda c: patch_global_class("extra", 1),
    "bases exchanged": lambda c: call(
        lambda: setattr(c.Model, "__bases__", (type("New", (c.Base,), {}),)),
        lambda: setattr(c.Model, "__bases__", (c.Base,)),
    ),
}
