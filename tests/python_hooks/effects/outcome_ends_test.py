"""What ends in a call, ends as it does without Grape: objects with finalizers, and those that somebody refers to weakly."""
import collections
import unittest
import weakref

from outcome import Observed, main, torch
from outcome_shapes import MODULE, Frozen, Pair, Plain, named, x

WEAK = []
ENDED = []


class Ending:
    def __init__(self, inside=None):
        self.inside = inside

    def __del__(self):
        ENDED.append(1)


class Bare:
    pass


class OneSlot:
    __slots__ = ("keys",)

    def __init__(self, keys):
        self.keys = keys


def watched(value):
    """With a callback that tells of its end."""
    WEAK.append(weakref.ref(value, lambda _: ENDED.append(1)))
    return value


def finalized(value):
    weakref.finalize(value, ENDED.append, 1)
    return value


def drop(holder):
    """Whether something ended as it was dropped."""
    before = len(ENDED)
    if isinstance(holder, list):
        holder.pop()
    elif isinstance(holder, dict):
        holder["key"] = None
    else:
        holder.keys = 1
    return len(ENDED) > before


def exchange_parts(holder):
    holder.keys, holder.values = holder.values, holder.keys


def renew_tuple(holder):
    """The new one is likely to lie where the old one lay."""
    kept, holder.keys = holder.keys[1], None
    holder.keys = (holder.values, kept)


class Ends(unittest.TestCase):
    """What the observed call lets go of ends in the call, as without Grape."""

    def test_in_the_call(self):
        containers = [lambda thing: named(keys=thing), OneSlot, lambda thing: [0, thing], lambda thing: {"key": thing},
                      lambda thing: collections.OrderedDict(key=thing)]
        nests = [lambda thing: thing, lambda thing: [[thing]], lambda thing: (1, (thing, 2)),
                 lambda thing: {"a": thing}, lambda thing: Plain(Ending([thing])), lambda thing: Pair(thing, 1),
                 lambda thing: {1: Frozen([thing])}]
        for make in (Ending, lambda: watched(Bare()), lambda: finalized(Bare()), lambda: watched({1})):
            for i, container in enumerate(containers):
                for j, nest in enumerate(nests):
                    with self.subTest(container=i, nest=j):
                        observed = Observed(drop, (container(nest(make())),), MODULE)
                        self.assertIs(observed.result(), True)
                        self.assertIn("the call lets go of an object with a finalizer", observed.reason() or "learned")

    @unittest.skipIf(torch is None, "of tensors")
    def test_asked_for(self):
        def ask(holder):
            inside = weakref.ref(holder.keys)
            holder.keys = None
            return inside() is None

        for make in (x, lambda: x()[1:]):
            self.assertIs(Observed(ask, (named(keys=make()),), MODULE).result(), True)

    def test_exchanged(self):
        for make in (Ending, lambda: watched(Bare())):
            observed = Observed(exchange_parts, (named(keys=make(), values=[make()]),), MODULE)
            self.assertIn("the call lets go of", observed.reason() or "learned")

    def test_tuple_in_the_same_place(self):
        observed = Observed(renew_tuple, (named(keys=(1, Ending()), values=2),), MODULE)
        self.assertIn("argument Holder.keys: the call lets go of", observed.reason() or "learned")

    def test_reached_by_a_weak_reference_only(self):
        kept = [named(keys=[[Ending()], {"a": Ending()}])]
        reference = weakref.ref(kept[0])
        observed = Observed(lambda holder: kept.clear(), (named(keys=reference),), MODULE)
        self.assertIn("argument Holder: the call lets go of", observed.reason() or "learned")
        self.assertIsNone(reference())

    def test_left_alone(self):
        def change(holder, *others):
            holder.values = 2

        tree = lambda: [Ending([1]), {"a": (1, watched(Bare()))}, Ending(Plain([Ending()]))]
        for rest in ([], [Ending()], [tree()], [named(keys=tree())], [(tree(), 1)], [Pair(tree(), 1)], [{1: tree()}]):
            observed = Observed(change, (named(keys=tree(), values=1), *rest), MODULE)
            self.assertIsNone(observed.reason())

    def test_keys(self):
        for make in (lambda: {watched(Bare()): 1}, lambda: [{(1, watched(Bare())): 1}]):
            observed = Observed(lambda holder: None, (make(),), MODULE)
            self.assertIn("a key whose end would be seen", observed.reason() or "learned")

    def test_in_what_cannot_be_watched(self):
        for make in (Ending, lambda: watched(Bare())):
            observed = Observed(lambda holder: None, (named(keys=slice(make())),), MODULE)
            self.assertEqual(observed.reason(),
                             "argument Holder: an object of type slice that refers to one whose end would be seen")


if __name__ == "__main__":
    main()
