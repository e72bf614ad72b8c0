"""Random numbers drawn on the host that nobody looks at, or only compares: which are told apart from those that somebody does
look at, and drawing them again. The interpreter tells of single instructions from Python 3.12 on; before, every number counts as looked at."""
import gc
import random
import sys
import threading
import unittest

import torch

import executed
from draw_cases import COMPARED, KEPT, MOVED, SEEN, UNSEEN, Holder, by_a_method, compared, dropping, layers
from executed import Observation

assert executed.load_torch()
TELLS = sys.version_info >= (3, 12)


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
