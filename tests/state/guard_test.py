"""Guards of plain objects: every change is seen, also where addresses are used again; nothing is kept alive."""
import collections
import enum
import functools
import gc
import random
import sys
import types
import weakref

import state
from state import Guard, form


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
    """A model with one of everything."""

    def __init__(self):
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
    "attribute deleted": lambda c: call(lambda: c.model.__dict__.popitem(), lambda: setattr(c.model, "parent", c.model)),
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
    "list deep in dicts": lambda c: call(lambda: c.model.table["a"]["c"].append(1), lambda: c.model.table["a"]["c"].pop()),
    "ordered value": lambda c: set_item(c.model.ordered, "x", 2),
    "order": lambda c: call(lambda: c.model.ordered.move_to_end("x"), lambda: c.model.ordered.move_to_end("x", last=False)),
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
    "attribute of a tuple's class": lambda c: call(lambda: setattr(c.model.pair, "n", 1), lambda: delattr(c.model.pair, "n")),
    "list in a slice": lambda c: set_item(c.model.view.stop, 0, 3),
    "weak reference to another": lambda c: set_attribute(c.model, "weak", weakref.ref(c.model.parts[0])),
    "module": lambda c: set_attribute(c.model, "module", gc),
    "attribute of the class": lambda c: call(lambda: setattr(c.Model, "number", 2), lambda: delattr(c.Model, "number")),
    "attribute of the base": lambda c: set_attribute(c.Base, "number", 2),
    "list in the base": lambda c: call(lambda: c.Base.shared.append(1), lambda: c.Base.shared.pop()),
    "method patched": lambda c: set_attribute(c.Base, "call", other),
    "method's code": lambda c: set_attribute(c.Base.call, "__code__", other.__code__),
    "method's default": lambda c: call(lambda: c.Base.call.__defaults__[0].append(1), lambda: c.Base.call.__defaults__[0].pop()),
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
        lambda: setattr(c.Model, "__bases__", (type("New", (c.Base,), {}),)), lambda: setattr(c.Model, "__bases__", (c.Base,))
    ),
}


def test_changes():
    assert len(CHANGES) > 50
    for name, change in CHANGES.items():
        case = Case()
        before = form(case.model, addresses=True)
        guard = Guard(case.model)
        assert guard.bytes == before, name
        assert guard.holds() and guard.holds(), name
        undo = change(case)
        assert form(case.model, addresses=True) != before, name
        assert not guard.holds(), name
        assert guard.change.startswith("module"), (name, guard.change)
        assert not guard.holds(), name
        undo()
        assert guard.holds() and guard.holds(), name
        assert guard.bytes == before, name


def test_quick():
    """Where nothing changed nothing is walked; and a queue, which shows no changes, is walked each time."""
    case = Case()
    del case.model.queue
    guard = Guard(case.model)
    for _ in range(10):
        assert guard.holds()
    assert guard.walks == 1
    case.model.training = True  # no change, but its dictionary does not know
    assert guard.holds()
    assert guard.walks <= 2
    walks = guard.walks
    for _ in range(10):
        assert guard.holds()
    assert guard.walks == walks
    case.model.queue = collections.deque()
    guard = Guard(case.model)
    assert guard.holds() and guard.holds() and guard.walks == 3


def test_irrelevant():
    case = Case()
    del case.model.queue
    guard = Guard(case.model)
    elsewhere = Case()
    elsewhere.model.training = False
    elsewhere.Base.number = 7
    Part(1).value = 2
    fresh_classes()[0].number = 3
    assert guard.holds() and guard.walks == 1
    case.Model.__slotnames__ = []  # as copy.deepcopy notes
    case.model.items[0] = int("1000")  # equal, another object
    case.model.table["d"] = 4
    case.model.parts[0] = Part(1)
    case.Base.number = 1
    assert guard.holds()
    walks = guard.walks
    assert guard.holds() and guard.walks == walks


def test_what_changed():
    case = Case()
    guard = Guard(case.model)
    for change, where in [
        (lambda: set_item(case.model.table["a"]["c"], 0, 9), "module.table['a']['c'][0]"),
        (lambda: set_attribute(case.model.parts[1], "value", 9), "module.parts[1].value"),
        (lambda: set_attribute(case.model, "training", False), "module.training"),
    ]:
        undo = change()
        assert not guard.holds() and guard.change == where, guard.change
        undo()
        assert guard.holds()
    case.model.handle = iter([])
    assert not guard.holds() and guard.change == "module.handle: a list_iterator", guard.change


def holder_of(kind):
    """(an object that is guarded, how to put a value into it)"""
    if kind == "list":
        case = Part([None])
        return case, lambda value: case.value.__setitem__(0, value)
    if kind == "slot":
        case = Part(Slots(None, None))
        return case, lambda value: setattr(case.value, "a", value)
    if kind == "cell":
        case = Part(closure(None))
        return case, lambda value: setattr(case.value.__closure__[0], "cell_contents", value)
    if kind == "default":
        function = types.FunctionType(add.__code__, globals())
        case = Part([function])
        return case, lambda value: setattr(function, "__defaults__", (value,))
    case = Part(None)
    return case, lambda value: setattr(case, "value", value)


VALUES = [
    lambda n: 10**6 + n,
    lambda n: n + 0.5,
    lambda n: "text %d" % n,
    lambda n: b"bytes %d" % n,
    lambda n: complex(n, 1),
    lambda n: (n + 10**6, "a"),
    lambda n: ([n], n),
    lambda n: ([n],),
    lambda n: [n + 10**6],
    lambda n: {"k": n},
    lambda n: {n},
    lambda n: frozenset({n}),
    lambda n: range(n),
    lambda n: slice(n + 10**6),
    lambda n: Part(n),
    lambda n: Slots(n + 10**6, 1),
    lambda n: Part(n).method,
    lambda n: closure(n + 10**6),
    lambda n: functools.partial(add, n + 10**6),
    lambda n: collections.OrderedDict([(1, n), (2, 3)]),
    lambda n: [n].append,
    lambda n: type("Made", (), {"n": n}),
    lambda n: type("Made", (), {"n": n})(),
    lambda n: types.ModuleType("made%d" % n),
]


def test_addresses_used_again():
    """A value that dies and leaves its address to another one: the guard says no each time that the value changed."""
    reused = 0
    for holder in ("list", "slot", "cell", "default", "attribute"):
        for make in VALUES:
            case, put = holder_of(holder)
            put(make(0))
            guard = Guard(case)
            before = form(case)
            for n in range(1, 40):
                address = id(make(0))
                put(None)
                put(make(n))
                reused += address == id(make(0))
                held = guard.holds()
                assert held == (form(case) == before) and not held, (holder, make(n), n)
                if n % 4 == 0:  # a guard of the value that stands there now
                    put(None)
                    put(make(n))
                    guard, before = Guard(case), form(case)
    assert reused > 1000, reused


def test_random_changes():
    """Guard and form agree on thousands of changes at random, done and undone."""
    source = random.Random(7)
    for _ in range(60):
        case = Case()
        guard, before = Guard(case.model), form(case.model, addresses=True)
        undone = []
        for _ in range(40):
            try:
                if undone and source.random() < 0.5:
                    undone.pop()()
                else:
                    undone.append(CHANGES[source.choice(sorted(CHANGES))](case))
            except (AttributeError, KeyError, IndexError, TypeError):
                pass  # what it changes is not there any more
            assert guard.holds() == (form(case.model, addresses=True) == before)
        while undone:
            try:
                undone.pop()()
            except (AttributeError, KeyError, IndexError, TypeError):
                pass


def test_keeps_nothing_alive():
    case = Case()
    Base, model = case.Base, case.model
    seen = [weakref.ref(x) for x in (model, model.part, model.parts[0], model.slots, model.closure, Base)]
    guard = Guard(model)
    assert guard.holds()
    del case, model, Base
    gc.collect()
    assert [one() for one in seen] == [None] * len(seen), [one() for one in seen]
    assert not guard.holds() and guard.change == "the module is gone"


def test_references():
    case = Case()
    things = [case.model, case.model.part, case.model.items, case.Base, case.model.table, add, sys]
    Guard(case.model)
    counts = [sys.getrefcount(thing) for thing in things]
    for _ in range(10):
        guard = Guard(case.model)
        guard.holds()
        undo = CHANGES["list item"](case)
        guard.holds()
        undo()
        guard.holds()
        del guard, undo
    assert [sys.getrefcount(thing) for thing in things] == counts
    blocks = sys.getallocatedblocks()
    for _ in range(50):
        Guard(case.model).holds()
    assert abs(sys.getallocatedblocks() - blocks) < 100


def test_dictionaries_tell():
    expected = {9: (1, 1), 10: (1, 1), 11: (1, 1), 12: (1, 1), 13: (1, 0), 14: (0, 0)}[state.version()[1]]
    made = Part(1)
    assert (state.tells_of_changes({}), state.tells_of_changes(made.__dict__)) == expected
    # In hot code, too, where the interpreter has put in its quick instructions.
    case = Case()
    part = case.model.part

    def store(target, n):
        target.value = n

    for n in range(3000):
        store(Part(0), n)
    guard = Guard(case.model)
    for n in range(3000):
        store(part, n + 10**6)
        assert not guard.holds(), n
        if n % 100 == 0:
            guard = Guard(case.model)
            assert guard.holds()


def test_not_a_guard():
    for thing, reason in [(3, "weakly"), (Part(iter([])), "module.value: a list_iterator")]:
        try:
            Guard(thing)
        except state.Refused as refused:
            assert reason in str(refused), refused
        else:
            raise AssertionError(thing)


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
