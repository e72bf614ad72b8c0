"""Walks that take what an earlier one kept of an argument: they write what any walk writes, whatever changed since."""

import random
import sys

from state import Memo, Refused, Walk
from values import MAKERS, Plain, Slots


def facts(make_walk):
    """All that a walk tells; or why it refuses."""
    try:
        walk = make_walk()
    except Refused as refused:
        return str(refused)
    return walk.bytes, [id(found) for found in walk.objects], walk.tensor_extents, walk.extents


def same(memo, *roots):
    """Was what is kept used? Either way the walk is as any other."""
    before = memo.recalled
    assert facts(lambda: memo.walk(*roots)) == facts(lambda: Walk(*roots))
    return memo.recalled != before


def padded(value):
    """Few values are not worth keeping."""
    return Plain(value=value, items=[[number] for number in range(10)], more={"a": (1, 2.5, "x"), "b": None})


def test_all_kinds_of_values():
    kept = 0
    for make in MAKERS:
        memo, root = Memo(), padded(make())
        if not memo.record(root):
            assert not same(memo, root)
            continue
        kept += 1
        assert same(memo, root) and same(memo, root)
        # Numbers are those of a walk that has come to as much.
        assert not same(memo, [1], root)
    assert kept > 0.9 * len(MAKERS), (kept, len(MAKERS))


def test_every_value_in_another_ones_place():
    makers = list(MAKERS)
    for number, make in enumerate(makers):
        root = padded(make())
        for other in random.Random(number).sample(makers, 12):
            memo = Memo()
            memo.record(root)
            root.value = other()
            same(memo, root)
            root.items[3] = root.value
            same(memo, root)
            root.items[3] = [3]


def test_keeps_what_is_unchanged():
    root, other, memo = padded([1, 2]), padded([1, 2]), Memo()
    assert not memo.keeps(root)
    for change in (
        lambda: root.value.append(3),
        lambda: setattr(root, "value", (1, 2)),
        lambda: root.more.update(b=1),
        lambda: root.items.pop(),
    ):
        assert memo.record([0], root, index=1) and memo.keeps(root) and not memo.keeps(other)
        assert same(memo, [0], root) and memo.keeps(root) and not same(memo, root) and memo.keeps(root)
        change()
        assert not memo.keeps(root) and not same(memo, [0], root)


def test_what_stands_ahead():
    shared = [1, 2]
    root = padded(shared)
    memo = Memo()
    assert memo.record("x", [0], root, [5], index=2)
    assert same(memo, "x", [0], root, [5])
    assert same(memo, "y", [1], root) and same(memo, "x", [0], root, shared, root)
    assert not same(memo, "x", shared, root), "met before"
    assert not same(memo, "x", root.items, root)
    assert not same(memo, "x", [[0]], root), "other numbers"
    assert not same(memo, [0], [0], root)
    assert not same(memo, root)
    # What stood ahead and comes again in it.
    assert memo.record(shared, root, index=1)
    assert same(memo, shared, root)
    assert not same(memo, [1, 2], root)
    root.value = [1, 2]
    assert not same(memo, shared, root)
    # Twice among the arguments.
    memo.record(root, root, index=0)
    same(memo, root, root)
    same(memo, [root], root)


def test_who_refers_to_a_dict():
    root = padded(Plain(a=1))
    memo = Memo()
    assert memo.record([0], root, index=1) and same(memo, [0], root)
    attributes = root.__dict__
    same(memo, [0], root)
    same(memo, attributes, root)
    same(memo, [attributes], root)
    inner = root.value.__dict__
    same(memo, [inner], root)
    memo.record([0], root, index=1)
    same(memo, [inner], root)
    del attributes, inner
    other = Plain()
    other.__dict__ = root.value.__dict__
    same(memo, other, root)
    memo.record(other, root, index=1)
    same(memo, other, root)
    same(memo, Plain(a=1), root)
    # A dictionary in it that is the __dict__ of what stands ahead, and one that is not.
    root = padded({"a": 1})
    apart, sharing = Plain(a=1), Plain()
    sharing.__dict__ = root.value
    for first, then in ((apart, sharing), (sharing, apart)):
        memo = Memo()
        memo.record(first, root, index=1)
        same(memo, first, root)
        assert not same(memo, then, root)


def test_another_object_at_its_place():
    def plain(parts):
        made = Plain()
        for name, part in parts.items():
            setattr(made, name, part)
        return made

    parts = {"a%d" % number: [number] for number in range(20)}
    others = dict(parts, a3=["other"])
    used = 0
    for make in (plain, lambda parts: list(parts.values()), dict, lambda parts: tuple(parts.values())):
        for number in range(60):
            memo = Memo()
            root = make(parts)
            place = id(root)
            memo.record(root)
            del root
            root = (plain, make)[number % 2](parts if number % 4 < 2 else others)
            used += id(root) == place
            same(memo, root)
    assert used > 10, "their places hardly came again"


def test_classes_change():
    class One:
        number = 1
        names = ["a"]

    class Two:
        number = 1
        names = ["a"]

    root = padded(One())
    changes = [
        lambda: setattr(One, "number", 2),
        lambda: One.names.append("b"),
        lambda: setattr(One, "f", lambda self: 1),
        lambda: setattr(root.value, "__class__", Two),
        lambda: setattr(Two, "number", 3),
        lambda: setattr(Plain, "later", 1),
        lambda: delattr(Plain, "later"),
    ]
    for change in changes:
        memo = Memo()
        assert memo.record(root)
        change()
        assert not same(memo, root), change


def random_value(rng, depth=0):
    kinds = "ildtsponIX" if depth < 4 else "isn"
    kind = rng.choice(kinds)
    if kind == "i":
        return rng.choice([0, 1, 2, 10**20, True])
    if kind == "s":
        return rng.choice(["a", "b", "long " * 5, b"c"])
    if kind == "n":
        return rng.choice([None, 1.5, -0.0, 2j])
    items = [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == "l" or kind == "X":
        return items
    if kind == "t":
        return tuple(items)
    if kind == "d":
        return {number: item for number, item in enumerate(items)}
    if kind == "o":
        made = Slots()
        made.a = items
        return made
    if kind == "I":
        return {rng.randrange(9) for _ in items}
    return Plain(**{"abc"[number]: item for number, item in enumerate(items[:3])})


def containers(value, into, seen):
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (list, dict, set, Plain, Slots)):
        into.append(value)
    parts = value if isinstance(value, (list, tuple)) else ()
    parts = value.values() if isinstance(value, dict) else parts
    parts = vars(value).values() if isinstance(value, Plain) else parts
    parts = (getattr(value, "a", None),) if isinstance(value, Slots) else parts
    for part in parts:
        containers(part, into, seen)


def change_one(rng, root):
    found = []
    containers(root, found, set())
    where, value = rng.choice(found), random_value(rng, 2)
    if rng.random() < 0.2:
        value = rng.choice(found)  # aliases, cycles
    if isinstance(where, list):
        if where and rng.random() < 0.5:
            where[rng.randrange(len(where))] = value
        elif where and rng.random() < 0.5:
            where.pop()
        else:
            where.append(value)
    elif isinstance(where, dict):
        where[rng.randrange(4)] = value
        if rng.random() < 0.3:
            where.pop(next(iter(where)))
    elif isinstance(where, set):
        where.symmetric_difference_update({rng.randrange(9)})
    else:
        setattr(where, "a", value)


def test_random_changes():
    used = 0
    for seed in range(400):
        rng = random.Random(seed)
        root = [random_value(rng) for _ in range(10)]
        ahead = [random_value(rng, 2) for _ in range(rng.randrange(3))]
        memo = Memo()
        memo.record(*ahead, root, index=len(ahead))
        for _ in range(6):
            used += same(memo, *ahead, root)
            if rng.random() < 0.3:
                ahead = [random_value(rng, 2) for _ in range(rng.randrange(3))]
            if rng.random() < 0.7:
                change_one(rng, root)
            if rng.random() < 0.3:
                memo.record(*ahead, root, index=len(ahead))
    assert used > 300, used


def test_nothing_is_held():
    class Held:
        pass

    made = Held()
    root = padded([made])
    memo = Memo()
    assert memo.record(root)
    counts = sys.getrefcount(made), sys.getrefcount(root)
    assert same(memo, root)
    assert counts == (sys.getrefcount(made), sys.getrefcount(root)) == (3, 2)


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
