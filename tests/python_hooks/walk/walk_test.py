"""The walk's form: equal for equal state, another one for everything that code could see; and what it refuses."""

import collections
import dataclasses
import enum
import functools
import gc
import itertools
import os
import random
import sys
import threading
import time
import types
import weakref

import state
from state import Walk, form, refusal
from values import MAKERS, Plain, Slots, add, aliased, closure, slots, subtract


def test_values():
    keep = []
    by_form = {}
    for number, make in enumerate(MAKERS):
        first, second = make(), make()
        keep += [first, second]
        assert form(first) == form(second), number
        assert form([first, 1]) == form([second, 1]), number
        assert form(first) == form(first), number
        assert form(first) not in by_form, (number, by_form[form(first)])
        by_form[form(first)] = number
    assert len(by_form) == len(MAKERS) > 100
    # The same as items, attributes and keys' values, where nothing around them helps to tell them apart.
    for wrap in (lambda x: [x, 1], lambda x: {"k": x}, lambda x: Plain(a=x), lambda x: (x, x)):
        forms = {form(wrap(make())) for make in MAKERS}
        assert len(forms) == len(MAKERS)


def test_numbers():
    numbers, rest = Walk([3, "x", (4, True)], {"k": -5, "f": 1.5}, numbers=True).numbers
    assert numbers == [3, 4, -5]
    others, same = Walk([7, "x", (8, True)], {"k": 9, "f": 1.5}, numbers=True).numbers
    assert others == [7, 8, 9] and same == rest
    for other in ([3, "y", (4, True)], [3, "x", (4, False)], [3, "x", (4.0, True)], [3, "x", (1 << 70, True)]):
        assert Walk(other, {"k": -5, "f": 1.5}, numbers=True).numbers[1] != rest
    assert Walk([1] * 5000, numbers=True).numbers[0] == [1] * 5000
    assert Walk([3]).numbers == ([], Walk([3]).bytes)
    assert Walk([3]).bytes == Walk([3], numbers=True).bytes
    walk = Walk([3], numbers=True)
    state.walk_clear(walk.handle)
    assert walk.numbers == ([], b"")


def test_several_roots():
    a, b = [1], [1]
    assert form(a, b) == form(b, a) != form(a, a)
    walk = Walk(a)
    walk.add(b)
    assert walk.bytes == form(a, b)
    # A walk keeps none of its objects alive.
    root, once, twice = [a, (b, 1, "x"), a], aliased(False), aliased(True)
    assert [id(x) for x in Walk(root).objects[1:]] == [id(a), id(b)]
    assert len(Walk(twice).objects) == 2 and len(Walk(once).objects) == 3


def test_classes():
    """What a class and its bases define is part of the form of its instances, and of the class itself."""

    class Base:
        shared = {"x": [1]}
        number = 1

        def f(self, x=[0]):
            return x

    class Derived(Base):
        pass

    made = Derived()
    changes = [
        (lambda: setattr(Base, "number", 2), lambda: setattr(Base, "number", 1)),
        (lambda: setattr(Derived, "number", 2), lambda: delattr(Derived, "number")),
        (lambda: Base.shared["x"].append(2), lambda: Base.shared["x"].pop()),
        (lambda: Base.f.__defaults__[0].append(2), lambda: Base.f.__defaults__[0].pop()),
        (lambda: setattr(Base, "f", subtract), lambda f=Base.f: setattr(Base, "f", f)),
        (lambda: setattr(Base, "g", subtract), lambda: delattr(Base, "g")),
        (
            lambda c=Base.f.__code__: setattr(Base.f, "__code__", subtract.__code__),
            lambda c=Base.f.__code__: setattr(Base.f, "__code__", c),
        ),
        (lambda: setattr(Derived, "p", property(add)), lambda: delattr(Derived, "p")),
    ]
    before, before_class = form(made), form(Derived)
    for number, (change, undo) in enumerate(changes):
        change()
        assert form(made) != before and form(Derived) != before_class, number
        undo()
        assert (form(made), form(Derived)) == (before, before_class), number
    other = Plain()
    plain = form(other)
    other.__class__ = Derived
    assert form(other) == form(made) != plain
    Derived.lock = threading.Lock()
    assert refusal(made) == "root (Derived).lock: a _thread.lock", refusal(made)


def test_annotated_classes():
    """What notes annotations in a class, and notes that they were asked for, is no state."""

    @dataclasses.dataclass
    class Annotated:
        x: int = 1
        y: "list" = None

    class Derived(Annotated):
        z: float = 2.0

        def method(self, a: int) -> "Derived":
            return __class__

    class Bare:
        pass

    class Choice(enum.Enum):
        extra: "threading.Lock"
        ONE = 1

    for cls in (Annotated, Derived, Bare, Choice):
        made = cls(1) if cls is Choice else cls()
        before = form(made, cls)
        for name in ("__annotate__", "__annotations__"):
            getattr(cls, name, None)
            assert form(made, cls) == before, (cls, name)


def test_library_classes():
    """Of libraries' classes what they define counts by identity."""
    made = types.SimpleNamespace
    example = collections.UserDict(a=1)
    before = form(example)
    assert before == form(collections.UserDict(a=1)) != form(collections.UserDict(a=2))
    kept = collections.UserDict.__getitem__
    try:
        collections.UserDict.__getitem__ = lambda self, key: 3
        patched = form(example)
        assert patched != before
    finally:
        collections.UserDict.__getitem__ = kept
    assert form(example) == before
    assert made is types.SimpleNamespace


def test_identity_outlives_addresses():
    """A class or function that dies and leaves its address to another one is not taken for it."""
    forms = set()
    for number in range(50):
        namespace = {}
        exec("class Local:\n  pass\ndef function():\n  return %d" % number, namespace)
        new = (form(namespace["Local"]()), form(namespace["function"]))
        assert new[0] not in forms and new[1] not in forms
        forms.update(new)
        del namespace
        gc.collect()


class Trap:
    """Anything that is asked of it by Python code is a failure."""

    armed = True

    def fail(self, *_, **__):
        raise AssertionError("user code was run")

    __eq__ = __hash__ = __len__ = __iter__ = __bool__ = __getattribute__ = __getattr__ = __contains__ = fail
    __getitem__ = __repr__ = __str__ = __index__ = __call__ = __reduce_ex__ = __dir__ = __sizeof__ = fail
    prop = property(fail)


class TrapMeta(type):
    def fail(cls, *_, **__):
        if sys._getframe(1).f_globals.get("__name__") == "__main__" and TrapMeta.open:
            return type.__getattribute__(cls, *_)
        raise AssertionError("user code was run")

    open = True
    __getattribute__ = __instancecheck__ = __subclasscheck__ = fail


class TrapDict(dict):
    __getitem__ = __iter__ = keys = items = __len__ = __eq__ = __contains__ = get = Trap.fail


class TrapList(list):
    __getitem__ = __iter__ = __len__ = __eq__ = Trap.fail


class TrapInt(int):
    __index__ = __int__ = __hash__ = __eq__ = Trap.fail


class TrapOrdered(collections.OrderedDict):
    __getitem__ = __iter__ = keys = items = __len__ = __eq__ = __hash__ = Trap.fail


class TrapDeque(collections.deque):
    __getitem__ = __iter__ = __len__ = __eq__ = Trap.fail


class CollidingKey:
    count = 0

    def __hash__(self):
        return 7

    def __eq__(self, other):
        CollidingKey.count += 1
        return self is other


class WithMeta(metaclass=TrapMeta):
    pass


def test_runs_no_code():
    meta_instance = WithMeta()
    ordered = collections.OrderedDict((CollidingKey(), i) for i in range(4))
    ordered.move_to_end(next(iter(ordered)))
    things = [Trap(), TrapDict(a=1), TrapList([1, 2]), TrapInt(5), TrapOrdered([(1, 2)]), TrapDeque([1]), ordered]
    things += [{CollidingKey(): 1, CollidingKey(): 2}, {CollidingKey(), CollidingKey()}, Trap]
    CollidingKey.count = 0
    TrapMeta.open = False
    seen = []
    sys.setprofile(lambda frame, event, arg: seen.append(frame.f_code.co_name) if event == "call" else None)
    walks = [state.walk_new(0) for _ in things]
    seen.clear()
    # In a list: ctypes itself asks an argument for its attributes.
    taken = [state.walk_add(walk, [thing], b"root") for walk, thing in zip(walks, things)]
    taken.append(state.walk_add(walks[0], [meta_instance], b"root"))
    sys.setprofile(None)
    TrapMeta.open = True
    called = [name for name in seen if name not in ("<listcomp>",)]
    reasons = [state.walk_reason(walk) for walk in walks]
    assert called == [] and CollidingKey.count == 0, called
    assert all(taken), reasons
    for walk in walks:
        state.walk_delete(walk)


class Showing:
    @property
    def __cuda_array_interface__(self):
        return {}


class ShowingInASlot:
    __slots__ = ("__array_struct__",)


def test_refusals():
    lock = threading.Lock()
    expected = [
        (lock, "root: a _thread.lock"),
        ([1, {"k": (lock,)}], "root[1]['k'][0]: a _thread.lock"),
        (Plain(a=Plain(b=lock)), "root.a.b: a _thread.lock"),
        ({1: lock}, "root[1]: a _thread.lock"),
        (slots(Slots, b=lock), "root.b: a _thread.lock"),
        (iter([]), "root: a list_iterator"),
        (time.gmtime(0), "root: a time.struct_time"),  # fields beside its items
        ([os.stat("/")], "root[0]: a os.stat_result"),
        (os.terminal_size((1, lock)), "root[1]: a _thread.lock"),
        ([types.ModuleType("made")], "root[0]: a module of the user's (made), whose names are settings"),
        (itertools.count(), "root: a itertools.count"),
        ((x for x in ()), "root: a generator"),
        (closure(lock), "root.__closure__[0]: a _thread.lock"),
        (functools.partial(add, lock), "root.args[0]: a _thread.lock"),
        (lock.acquire, "root.__self__: a _thread.lock"),
        (weakref.ref(Plain, print), "root: a weak reference with a callback"),
        (memoryview(b""), "root: a memoryview"),
        (bytearray(), "root: a bytearray"),
        (add.__code__, "root: a code"),
        (open(__file__), "root: a _io.TextIOWrapper"),
        (sys._getframe(), "root: a frame"),
        (object(), "root: a object"),  # a mark that code knows by its identity
        (type("Lock", (type(itertools.count()),), {})(), "root: a __main__.Lock"),
        (threading.Condition(lock), "root._lock: a _thread.lock"),
        (Plain(__array_interface__={}), "root.__array_interface__: memory by its address"),
        (Plain(__cuda_array_interface__={}), "root.__cuda_array_interface__: memory by its address"),
        (Showing(), "root: a __main__.Showing"),
        (slots(ShowingInASlot, __array_struct__=1), "root: a __main__.ShowingInASlot"),
        (random.Random(1).random, "root.__self__: a random.Random"),
        (random.Random(1).randint, "root.__self__: a random.Random"),
    ]
    for thing, reason in expected:
        got = refusal(thing)
        assert got == reason, (got, reason)


def test_functions_of_random():
    """Methods of the generator that the module keeps: `from random import random`."""
    assert form(random.random) == form(random.random) != form(random.getrandbits)
    assert form(random.randint) == form(random.randint) != form(random.choice)


def test_limits():
    deep = []
    for _ in range(150):
        deep = [deep]
    form(deep)
    for _ in range(100_000):
        deep = [deep]
    assert "more than 200 levels deep" in refusal(deep)
    while deep:
        deep = deep[0]
    assert refusal([0] * 999_000) is None
    assert "more than a million objects" in refusal([0] * 1_000_001)
    table = ()
    for _ in range(60):
        table = (table, table)
    assert "more than a million objects" in refusal(table)


def test_leaves_no_trace():
    """References are as before, no exception is set, the collector is left as it was."""
    things = [make() for make in MAKERS]
    for thing in things:
        form(thing)  # what is remembered of classes is made once
    gc.collect()
    counts = [sys.getrefcount(thing) for thing in things]
    blocks = sys.getallocatedblocks()
    for _ in range(20):
        for thing in things:
            form(thing)
    assert [sys.getrefcount(thing) for thing in things] == counts
    assert abs(sys.getallocatedblocks() - blocks) < 100
    assert gc.isenabled()
    gc.disable()
    form([Plain()])
    assert not gc.isenabled()
    gc.enable()
    try:
        raise KeyError("kept")
    except KeyError:
        form([1])
        refusal(iter([]))
        assert isinstance(sys.exc_info()[1], KeyError)


def test_shared_attributes():
    """Objects with one __dict__, and a __dict__ that is met as a value, are told from those that have equal ones."""

    def pair(kind, shared):
        first, second = kind(), kind()
        for one in (first, second):
            one.scale, one.parts = 1.0, [2]
        second.parts = first.parts
        if shared:
            second.__dict__ = first.__dict__
        return first, second

    def function():
        return lambda: 1

    class Named(dict):
        pass

    for kind in (Plain, function, Named, functools.partial(functools.partial, print)):
        one, apart, shared = Plain(), pair(kind, False), pair(kind, True)
        for first, second in (apart, shared):
            assert form(first) == form(second)
            assert form([first, one, second]) == form([first, one, second])
        assert form(apart) != form(shared) and form(apart[::-1]) != form(shared[::-1])
        assert form([one, apart]) != form([one, shared])
        for first, second in (apart, pair(kind, False)):
            for left, right in ((first, vars(first)), (vars(first), first), ([first], {1: vars(first)})):
                assert form(left, right) == form(left, right)
            assert form(first, vars(first)) != form(first, vars(second))
            assert form(vars(first), first) != form(vars(second), first)
            assert form(first, second, vars(first)) != form(first, second, vars(second))
            assert form(vars(first), vars(second), first) != form(vars(second), vars(first), first)
    # Who else refers to it does not show, nor who did.
    first, second = pair(Plain, False)
    roots = [first, collections.OrderedDict(a=first), second, types.SimpleNamespace(a=second)]
    for addresses in (False, True):
        before = Walk(roots, addresses=addresses)
        kept = [vars(first), vars(roots[1]), vars(roots[3])]
        now = Walk(roots, addresses=addresses)
        assert now.bytes == before.bytes and list(map(id, now.objects)) == list(map(id, before.objects))
        for held in kept:
            assert form(roots, held, addresses=addresses) != form(roots, dict(held), addresses=addresses)
        del kept
        assert form(roots, addresses=addresses) == before.bytes


def test_weak_references():
    target = Plain(a=1)
    one, other = weakref.ref(target), weakref.ref(Plain(a=1))
    assert form([target, one]) == form([target, one]) != form([target, other])
    assert form([other]) == form([other]) != form([weakref.ref(target)])


def test_collects_nothing():
    """No finalizer runs while objects are looked at."""
    ran = []

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            ran.append(1)

    walk = state.walk_new(0)
    fresh = [Plain() for _ in range(2000)]
    for one in fresh:
        one.a = 1
    gc.collect()
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    gc.disable()
    for _ in range(10):
        Cycle()
    gc.enable()
    ran.clear()
    taken = state.walk_add(walk, fresh, b"root")
    during = len(ran)
    gc.set_threshold(*before)
    state.walk_delete(walk)
    # The call itself may collect before and after; what matters is that the walk came out whole.
    assert taken and during in (0, 10)


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
