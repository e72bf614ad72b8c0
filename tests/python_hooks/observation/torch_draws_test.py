"""Random numbers drawn on the host that nobody looks at, or only compares: which are told apart from those that somebody does
look at, and drawing them again. The interpreter tells of single instructions from Python 3.12 on; before, every number counts as looked at."""
import functools
import gc
import random
import sys
import threading
import unittest

import torch

import executed
from executed import Observation

assert executed.load_torch()
TELLS = sys.version_info >= (3, 12)
KEPT = []


def layers(count, training=False):
    """As layer drop in transformers' encoders."""
    done = 0
    for _ in range(count):
        p = torch.rand([])
        skip = training and p < 0.1
        if not skip:
            done += 1
    return done


def dropped():
    torch.rand(3)
    torch.randn(2, 3, dtype=torch.float64)


def many_kinds():
    a = torch.rand(2, 3)
    b = torch.randint(0, 7, (4,))
    c = torch.randn((2,), dtype=torch.float64)
    d = torch.randperm(5)
    e = torch.rand(*(2, 3), **{"dtype": torch.float32})


def deleted():
    p = torch.rand([])
    del p


def used_after_deletion():
    p = torch.rand([])
    del p
    p = 3
    return p  # another value, but nobody here tells them apart


def in_a_lambda():
    return (lambda: layers(2))()


def nested(depth):
    p = torch.rand([])
    return nested(depth - 1) if depth else 1


def generator():
    for _ in range(3):
        p = torch.rand([])
        yield 1


def consumed():
    return sum(generator())


def in_two_places():
    p = q = torch.rand([])


UNSEEN = [
    ("nothing is drawn", lambda: 1, 0),
    ("layer drop", lambda: layers(12), 12),
    ("given up at once", dropped, 2),
    ("several kinds", many_kinds, 5),
    ("deleted", deleted, 1),
    ("in a function that is called by another one", in_a_lambda, 2),
    ("in itself", lambda: nested(3), 4),
    ("in a generator", consumed, 3),
    ("in two variables", in_two_places, 1),
]


class Holder:
    def __init__(self, drop=0.1, training=True):
        self.drop, self.training, self.settings = drop, training, self

    def limit(self, factor=1):
        return self.drop * factor


def dropping(self):
    """As in transformers' OPT and BART."""
    done = 0
    for _ in range(4):
        if self.training:
            p = torch.rand([])
            if p < self.drop:
                continue
        done += 1
    return done


def dropping_by_a_flag(self):
    done = 0
    for _ in range(3):
        drop = False
        p = torch.rand(1)
        if self.training and p <= self.settings.drop:
            drop = True
        if not drop:
            done += 1
    return done


def kept_truth(self):
    p = torch.rand([])
    skip = not p > self.drop
    return skip


def reversed_sides(self):
    p = torch.rand([])
    return 1 if self.drop >= p and self.training else 2


def at_once(self):
    if torch.rand([]) < self.drop or torch.rand(()) >= 1 - self.drop:
        return 1
    return 2


def by_a_method(self):
    p = torch.rand([])
    return 1 if p < self.limit(2) * 0.5 else 2


def asked_twice(self):
    q = p = torch.rand([])
    low = q < self.drop
    if low:
        return 1
    return 2 if not low and p < 1 else 3


def moved_between_variables(self):
    p = torch.rand([])
    q, r = p, 3
    return 1 if q < self.drop else r


def in_a_chain(self):
    p = torch.rand([])
    return 1 if self.drop < p < 0.7 else 2


exec(
    "def many_names(self):\n p = torch.rand([])\n if p < self.drop:\n" + "  x = self\n" * 400 + " return 2"
)  # past the reach of a single instruction

# name, function, the numbers drawn by a call that drops nothing, and decisions
COMPARED = [
    ("dropping", dropping, 4, 4),
    ("layers", lambda self: layers(12, self.training), 12, 12),
    ("by a flag", dropping_by_a_flag, 3, 3),
    ("kept truth", kept_truth, 1, 1),
    ("reversed", reversed_sides, 1, 1),
    ("at once", at_once, 2, 2),
    ("by a method", by_a_method, 1, 1),
    ("asked twice", asked_twice, 1, 3),
    ("moved", moved_between_variables, 1, 1),
    ("in a chain", in_a_chain, 1, 2),
    ("far jumps", many_names, 1, 1),
]


def identified():
    return torch.rand(3) is None


def compared():
    p = torch.rand([])
    return p < 0.1


def outcome_in_a_list():
    p = torch.rand([])
    return [p < 0.1]


def outcome_told():
    p = torch.rand([])
    low = p < 0.1
    return low.item()


def outcome_passed_on():
    p = torch.rand([])
    return bool(p < 0.1)


def compared_with_a_number_drawn():
    p = torch.rand([])
    q = torch.rand([])
    return 1 if p < q else 2


def compared_with_a_tensor():
    p = torch.rand([])
    limit = torch.zeros(())
    return 1 if p < limit else 2


def compared_for_equality():
    p = torch.rand([])
    return 1 if p == 0.5 else 2


def truth_of_the_number():
    p = torch.rand([])
    return 1 if p else 2


def compared_and_computed():
    p = torch.rand([])
    if p < 2:
        return (p * 2).item()


def many_compared():
    p = torch.rand(3)
    try:
        return 1 if p < 0.5 else 2
    except RuntimeError:
        return 3


def outcomes_combined():
    p = torch.rand([])
    return 1 if (p > 0.1) & (p < 0.2) else 2


def kept_outcome():
    p = torch.rand([])
    KEPT.append(p < 0.1)


def compared_in_itself(depth=3):
    p = torch.rand([])
    if depth:
        compared_in_itself(depth - 1)
    return 1 if p < 0.1 else 2


def told():
    p = torch.rand([])
    return p.item()


def passed_on():
    p = torch.rand([])
    return str(p)


def returned():
    return torch.rand([])


def returned_from_a_variable():
    p = torch.rand([])
    return p


def in_a_list():
    return [torch.rand([]) for _ in range(2)]


def kept():
    KEPT.append(torch.rand([]))


def kept_in_an_attribute():
    kept.p = torch.rand([])


def kept_in_a_global():
    global KEPT_ONE
    KEPT_ONE = torch.rand([])


def in_a_cell():
    p = torch.rand([])
    return (lambda: p is None)()


def by_locals():
    p = torch.rand([])
    return locals()["p"].item()


def by_vars():
    p = torch.rand([])
    return vars()["p"].item()


def by_eval():
    p = torch.rand([])
    return eval("p").item()


def by_a_frame():
    p = torch.rand([])
    try:
        raise ValueError
    except ValueError as error:
        return error.__traceback__.tb_frame.f_locals["p"].item()


def suspended():
    p = torch.rand([])
    yield 1
    yield p.item()


def kept_alive():
    KEPT.append(suspended())
    return next(KEPT[-1])


def by_map():
    p = list(map(torch.rand, [(), ()]))


def by_max():
    p = max(map(torch.rand, [(), ()]))


def by_next():
    p = next(map(torch.rand, [()]))


def by_partial():
    p = functools.partial(torch.rand, ())()


def unpacked():
    p, q = torch.rand(2)


def in_place():
    p = torch.rand([])
    p += 1


def of_another_name():
    draw = getattr(torch, "ra" + "nd")
    p = draw([])


def by_a_method():
    p = torch.empty(3).uniform_()


def by_another_function():
    p = torch.bernoulli(torch.full((3,), 0.5))


def from_a_generator():
    p = torch.rand([], generator=torch.Generator())


def of_another_type():
    class Number(torch.Tensor):
        pass

    p = torch.rand([]).as_subclass(Number)


def read_later():
    for i in range(2):
        if i:
            return p.item()
        p = torch.rand([])


SEEN = [
    compared, outcome_in_a_list, outcome_told, outcome_passed_on, compared_with_a_number_drawn, compared_with_a_tensor,
    compared_for_equality, truth_of_the_number, compared_and_computed, many_compared, outcomes_combined, kept_outcome,
    compared_in_itself, identified, told, passed_on, returned, returned_from_a_variable, in_a_list, kept, kept_in_an_attribute, kept_in_a_global,
    in_a_cell, by_locals, by_vars, by_eval, by_a_frame, kept_alive, by_map, by_max, by_next, by_partial, unpacked, in_place,
    from_a_generator, of_another_type, read_later, used_after_deletion,
]  # fmt: skip
# What draws is not known: it shows in the generator's state.
MOVED = [by_a_method, by_another_function]


class Watched:
    """One observed call: how many numbers nobody looked at (-1: somebody did), and whether drawing these moves as the call did."""

    def __init__(self, function, *arguments):
        self.random, self.observation = executed.host_random_new(), Observation()
        self.result = self.observation.run(function, *arguments)
        self.unseen = executed.code_followed_draws(self.observation.handle)
        self.explained = self.unseen >= 0 and bool(executed.host_random_moved_by(self.random, self.observation.handle))

    def __del__(self):
        executed.host_random_delete(self.random)


class Draws(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        # What is set up at first is no part of it.
        layers(1)

    @unittest.skipUnless(TELLS, "before 3.12")
    def test_unseen(self):
        for name, function, count in UNSEEN:
            with self.subTest(name):
                watched = Watched(function)
                self.assertEqual(watched.unseen, count)
                self.assertTrue(watched.explained)

    def test_seen(self):
        for function in SEEN:
            with self.subTest(function.__name__):
                self.assertEqual(Watched(function).unseen, -1)

    def test_other_draws(self):
        for function in MOVED:
            with self.subTest(function.__name__):
                self.assertFalse(Watched(function).explained)

        def both():
            layers(2)
            by_a_method()

        self.assertFalse(Watched(both).explained)
        self.assertFalse(Watched(lambda: (layers(2), random.random())).explained)

    @unittest.skipUnless(TELLS, "before 3.12")
    def test_compared(self):
        for name, function, count, decisions in COMPARED:
            with self.subTest(name):
                for drop in (-1, 0.5, 2):
                    watched = Watched(function, Holder(drop))
                    self.assertTrue(watched.explained)
                    if drop == -1:
                        self.assertEqual(watched.unseen, count)
                        self.assertEqual(executed.code_decisions(watched.observation.handle), decisions)

    @unittest.skipUnless(TELLS, "before 3.12")
    def test_decides_the_same(self):
        """A call that would take another way is told, for each number that it may draw, and nothing moves."""
        for name, function, _, _ in COMPARED:
            with self.subTest(name):
                holder, ways = Holder(0.5), set()
                watched = Watched(function, holder)
                for seed in range(40):
                    torch.manual_seed(seed)
                    before = torch.get_rng_state()
                    same = bool(executed.code_decide_the_same(watched.observation.handle))
                    self.assertTrue(torch.equal(torch.get_rng_state(), before))
                    result = function(holder)
                    ways.add(same)
                    if same:
                        self.assertEqual(result, watched.result)
                    elif name in ("kept truth", "reversed", "by a method", "moved"):
                        self.assertNotEqual(result, watched.result)
                self.assertEqual(ways, {False, True} if name != "layers" else {False})

    @unittest.skipUnless(TELLS, "before 3.12")
    def test_repeated(self):
        watched = Watched(layers, 5)
        before = torch.get_rng_state()
        layers(5)
        expected, following = torch.get_rng_state(), torch.rand(3)
        torch.set_rng_state(before)
        self.assertTrue(executed.code_repeat_draws(watched.observation.handle))
        self.assertTrue(torch.equal(torch.get_rng_state(), expected))
        self.assertTrue(torch.equal(torch.rand(3), following))

    @unittest.skipUnless(TELLS, "before 3.12")
    def test_same(self):
        def two(size):
            p = torch.rand(size)
            p = torch.rand([2], dtype=torch.float64)

        def same(a, b):
            return bool(executed.code_same_draws(a.observation.handle, b.observation.handle))

        a, b, c, d = Watched(two, [3]), Watched(two, [3]), Watched(two, [4]), Watched(layers, 2)
        self.assertTrue(same(a, b))
        self.assertFalse(same(a, c) or same(a, d) or same(d, Watched(layers, 3)))

    @unittest.skipUnless(TELLS, "before 3.12")
    def test_arguments_are_kept_as_they_were(self):
        size = [3]

        def draw():
            p = torch.rand(size)

        watched = Watched(draw)
        self.assertEqual(watched.unseen, 1)
        before = torch.get_rng_state()
        draw()
        expected = torch.get_rng_state()
        torch.set_rng_state(before)
        size[0] = 5
        executed.code_repeat_draws(watched.observation.handle)
        self.assertTrue(torch.equal(torch.get_rng_state(), expected))

    @unittest.skipUnless(TELLS, "before 3.12")
    def test_leaves_nothing(self):
        numbers = sys.getrefcount(torch.rand), sys.getrefcount(layers.__code__)
        for _ in range(20):
            Watched(layers, 3)
            Watched(compared)
        gc.collect()
        self.assertLessEqual(sys.getrefcount(torch.rand) - numbers[0], 2)
        self.assertLessEqual(sys.getrefcount(layers.__code__) - numbers[1], 2)
        monitoring = sys.monitoring
        self.assertEqual([monitoring.get_tool(i) for i in (3, 4)], [None, None])
        self.assertEqual(layers(4), 4)

    @unittest.skipUnless(TELLS, "before 3.12")
    def test_others_have_the_tools(self):
        for tool in (3, 4):
            sys.monitoring.use_tool_id(tool, "other")
        try:
            self.assertEqual(Watched(layers, 2).unseen, -1)
        finally:
            sys.monitoring.free_tool_id(3)
        self.assertEqual(Watched(layers, 2).unseen, 2)
        self.assertEqual(sys.monitoring.get_tool(4), "other")
        sys.monitoring.free_tool_id(4)

    def test_what_is_drawn_does_not_pile_up(self):
        alive, most = set(), 0

        class Counted:
            def __init__(self, number):
                self.number = number
                alive.add(number)

            def __del__(self):
                alive.discard(self.number)

        def large(look):
            nonlocal most
            for i in range(32):
                noise = torch.rand(1 << 16)
                noise.counted = Counted(i) if look else None
                most = max(most, len(alive))

        self.assertEqual(Watched(large, True).unseen, -1)
        self.assertLessEqual(most, 3)

        def larger():
            for _ in range(5):
                noise = torch.rand(1 << 16)  # 256 KiB

        self.assertEqual(Watched(larger).unseen, -1)

    @unittest.skipUnless(TELLS, "before 3.12")
    def test_other_threads_run_the_same_code(self):
        go, done = threading.Event(), threading.Event()

        def other():
            while not done.is_set():
                layers(3, training=True)
                go.set()

        thread = threading.Thread(target=other)
        thread.start()
        go.wait()
        try:
            counts = {Watched(layers, 50).unseen for _ in range(20)}
        finally:
            done.set()
            thread.join()
        self.assertEqual(counts, {50})

    @unittest.skipUnless(TELLS, "before 3.12")
    def test_in_a_mode(self):
        with torch.device("cpu"):  # a mode in Python, which sees all functions and what they give
            self.assertFalse(Watched(layers, 2).unseen > 0)


        class Looking(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, arguments=(), keywords=None):
                if function.__name__ != "rand":
                    return function(*arguments, **(keywords or {}))
                number = torch.empty(()).uniform_()
                KEPT.append(number.item())
                return number

        with Looking():
            self.assertEqual(Watched(layers, 2).unseen, -1)

        class Comparing(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, arguments=(), keywords=None):
                KEPT.append(float(arguments[0]))
                return function(*arguments, **(keywords or {}))

        def in_between():
            p = torch.rand([])
            with Comparing():
                return 1 if p < 0.5 else 2

        def within(self):
            p = torch.rand([])
            self.__enter__()
            low = p < 0.5
            self.__exit__(None, None, None)
            return 1 if low else 2

        self.assertEqual(Watched(in_between).unseen, -1)
        self.assertEqual(Watched(within, Comparing()).unseen, -1)

    @unittest.skipUnless(TELLS, "before 3.12")
    def test_replaced_comparison(self):
        """A class's comparison in Python sees the number, even where it calls PyTorch's."""
        compare = torch.Tensor.__lt__

        def looking(tensor, other):
            KEPT.append(tensor.item())
            return compare(tensor, other)

        torch.Tensor.__lt__ = looking
        try:
            self.assertEqual(Watched(dropping, Holder()).unseen, -1)
        finally:
            del torch.Tensor.__lt__
        self.assertEqual(Watched(dropping, Holder(-1)).unseen, 4)


if __name__ == "__main__":
    unittest.main()
