"""Guards of plain objects: every change is seen, also where addresses are used again; nothing is kept alive."""

import collections
import functools
import gc
import random
import sys
import types
import weakref

import state
from cases import CHANGES, Case, Part, Slots, add, closure, fresh_classes, set_attribute, set_item
from state import Guard, Refused, Walk, form, form_and_objects
from values import Plain


def test_changes(queue=False):
    assert len(CHANGES) > 50
    for name, change in CHANGES.items():
        if not queue and "deque" in name:
            continue
        case = Case(queue)
        before, objects = form_and_objects(case.model)
        guard = Guard(case.model)
        assert guard.bytes == before, name
        assert guard.holds() and guard.holds(), name
        assert guard.walks == (3 if queue else 1), name
        undo = change(case)
        assert form(case.model, addresses=True) != before, name
        assert not guard.holds(), name
        assert guard.change.startswith("module"), (name, guard.change)
        assert not guard.holds(), name
        undo()
        same = form_and_objects(case.model) == (before, objects)
        assert same or name.startswith("partial's"), name  # a partial's state is put back by equal objects
        assert guard.holds() == same and guard.holds() == same, name
        assert guard.bytes == before, name


def test_no_weak_reference():
    for thing in (1, (1, 2), slice(1)):
        try:
            Guard(thing)
        except Refused as refused:
            assert str(refused) == "an object that cannot be referred to weakly", refused
        else:
            raise AssertionError(thing)


def test_changes_by_walks():
    test_changes(queue=True)


def test_quick():
    """Where nothing changed nothing is walked; and a queue, which shows no changes, is walked each time."""
    case = Case()
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
    case.Base.number = 1
    assert guard.holds()
    walks = guard.walks
    assert guard.holds() and guard.walks == walks


def test_an_object_that_looks_alike_is_another_one():
    case = Case()
    part = case.model.parts[0]
    guard = Guard(case.model)
    for put in (
        lambda: set_item(case.model.parts, 0, Part(1)),
        lambda: set_attribute(case.model, "items", list(case.model.items)),
        lambda: set_attribute(case.model, "table", dict(case.model.table)),
    ):
        undo = put()
        assert not guard.holds() and "replaced by an equal one" in guard.change, guard.change
        undo()
        assert guard.holds()
    assert case.model.parts[0] is part


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


def test_code_used_again():
    """Also the code of a function, which may die and leave its address to the next."""
    made = {}
    for n in range(40):
        exec("def made():\n  return %d" % n, made)
        function = made.pop("made")
        case = Part([types.FunctionType(add.__code__, globals())])
        case.value[0].__code__ = function.__code__
        guard = Guard(case)
        del function
        case.value[0].__code__ = add.__code__
        exec("def made():\n  return %d" % (n + 1000), made)
        case.value[0].__code__ = made.pop("made").__code__
        assert not guard.holds(), n


def test_weak_reference_dies():
    for wrap in (lambda x: x, lambda x: [x], lambda x: (x, [1])):
        target = Part([1])
        case = Part(wrap(weakref.ref(target)))
        guard = Guard(case)
        assert guard.holds() and guard.walks == 1
        del target
        others = [Part([2]) for _ in range(3)]
        assert not guard.holds() and others
        assert guard.change.startswith("module.value"), guard.change


def test_weak_reference_to_an_equal():
    """What it referred to is dead, and an equal one stands at its address."""
    again = 0
    for _ in range(50):
        target = {1, 2}
        case = Part([weakref.ref(target)])
        guard, address = Guard(case), id(target)
        del target
        others = []
        while len(others) < 500 and id(target := {1, 2}) != address:
            others.append(target)
        again += id(target) == address
        assert case.value[0]() is None and not guard.holds()
    assert again > 10, again


def test_metaclass():
    class Meta(type):
        number = 1

    class Made(metaclass=Meta):
        pass

    case = Part([Made(), Made])
    guard = Guard(case)
    assert guard.holds() and guard.walks == 1
    Meta.number = 2
    assert not guard.holds()
    Meta.number = 1
    assert guard.holds()
    Meta.method = add
    assert not guard.holds()


def test_class_changed_often():
    """So often that the interpreter (3.13) gives its class no versions any more."""
    case = Case()
    for n in range(3000):
        case.Base.number = n
        if n % 50 == 0:
            guard = Guard(case.model)
            assert guard.holds()
            case.Base.number = -1
            assert not guard.holds(), n
            case.Base.number = n
            assert guard.holds(), n


def test_random_changes():
    """Guard and form (with the objects that it is of) agree on thousands of changes at random, done and undone."""
    source = random.Random(7)
    for _ in range(60):
        case = Case()
        guard, before = Guard(case.model), form_and_objects(case.model)
        undone = []
        for _ in range(40):
            try:
                if undone and source.random() < 0.5:
                    undone.pop()()
                else:
                    undone.append(CHANGES[source.choice(sorted(CHANGES))](case))
            except (AttributeError, KeyError, IndexError, TypeError):
                pass  # what it changes is not there any more
            assert guard.holds() == (form_and_objects(case.model) == before)
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


def test_shared_attributes():
    """A __dict__ of the module's among the arguments is none that looks like it, also if nobody referred to it before."""
    model, other = Plain(), Plain()
    for one in (model, other):
        one.config = Plain(scale=1.0)
    guard = Guard(model)

    def shared(*arguments):
        assert guard.holds()
        return guard.sharing(Walk(*arguments))

    for _ in range(3):
        borg, lone = Plain(), Plain(scale=1.0)
        borg.__dict__ = vars(model.config)
        assert shared(vars(model.config)) != shared(vars(other.config)) == shared({"scale": 1.0})
        assert shared(vars(model)) != shared(vars(other))
        assert shared(vars(model.config)) != shared(vars(model))
        assert shared([lone, borg]) != shared([borg, lone]) != shared([lone, lone])
        assert shared([lone, borg]) != shared([lone, Plain(scale=1.0)])
    # Who else refers to it does not show.
    for arguments in ((model.config,), (model, model.config), (other.config,)):
        before = shared(*arguments)
        kept = [vars(model), vars(model.config), vars(other.config)]
        assert shared(*arguments) == before
        del kept
    assert shared(model.config) != shared(other.config)
    # Exchanged for an equal one: it is that one now.
    kept = vars(model.config)
    model.config.__dict__ = dict(kept)
    assert shared(vars(model.config)) != shared(kept) == shared({"scale": 1.0})


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
