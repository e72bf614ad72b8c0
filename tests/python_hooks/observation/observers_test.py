"""Who profiles, traces or debugs is not disturbed by an observation, and what they set in the call stays."""
import cProfile
import sys
import threading
import time
import unittest

from executed import Observation


class OthersTest(unittest.TestCase):
    def setUp(self):
        self.observation = Observation()

    def tearDown(self):
        sys.setprofile(None)
        sys.settrace(None)

    def test_nobody_is_seen(self):
        seen = []
        self.observation.run(lambda: seen.append((sys.getprofile(), sys.gettrace())))
        self.assertEqual(seen, [(None, None)])
        self.assertIsNone(sys.getprofile())

    def test_after_return_and_exception(self):
        for function, error in ((int, None), (lambda: 1 / 0, ZeroDivisionError)):
            try:
                self.observation.run(function)
            except ZeroDivisionError as raised:
                self.assertIs(type(raised), error)
            self.assertIsNone(sys.getprofile())
            self.assertIsNone(sys.gettrace())
            self.assertTrue(self.observation.begin())
            self.observation.end()

    def test_profile_function(self):
        calls = []

        def profile(frame, event, argument):
            calls.append(event)

        sys.setprofile(profile)
        self.assertFalse(self.observation.begin())
        self.assertIs(sys.getprofile(), profile)
        len(calls)
        sys.setprofile(None)
        self.assertTrue(calls)
        self.assertTrue(self.observation.begin())
        self.observation.end()

    def test_trace_function(self):
        def trace(frame, event, argument):
            return None

        sys.settrace(trace)
        began = self.observation.begin()
        kept = sys.gettrace() is trace
        sys.settrace(None)
        self.assertEqual((began, kept), (False, True))

    def test_threads_to_come_are_traced(self):
        threading.settrace(lambda *_: None)
        try:
            self.assertFalse(self.observation.begin())
        finally:
            threading.settrace(None)
        self.assertTrue(self.observation.begin())
        self.observation.end()

    def test_cprofile(self):
        profile = cProfile.Profile()
        profile.enable()
        try:
            self.assertFalse(self.observation.begin())
            len([])
        finally:
            profile.disable()
        self.assertTrue(any("len" in str(entry.code) for entry in profile.getstats()))
        self.assertTrue(self.observation.begin())
        self.observation.end()

    def test_profile_set_in_the_call_stays(self):
        def profile(frame, event, argument):
            pass

        self.observation.begin()
        sys.setprofile(profile)
        self.observation.end()
        self.assertIs(sys.getprofile(), profile)
        sys.setprofile(None)
        self.assertIn("sys.setprofile", self.observation.reason)

    @unittest.skipIf(sys.version_info < (3, 12), "sys.monitoring came with 3.12")
    def test_monitoring(self):
        monitoring = sys.monitoring
        for tool, events, expected in ((0, 0, False), (1, 0, False), (2, 0, True), (3, 1, False), (5, 0, True)):
            monitoring.use_tool_id(tool, "grape test")
            monitoring.set_events(tool, events)
            try:
                began = self.observation.begin()
                if began:
                    self.observation.end()
                self.assertEqual(began, expected, (tool, events))
            finally:
                monitoring.set_events(tool, 0)
                monitoring.free_tool_id(tool)


class DepthAndThreadsTest(unittest.TestCase):
    def setUp(self):
        self.observation = Observation()

    def test_deep_recursion(self):
        """From 3.11 Python code may nest without end: it may while observed."""

        def nest(depth):
            return nest(depth - 1) + 1 if depth else 0

        depth = 50000 if sys.version_info >= (3, 11) else 700
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(depth + 1000)
        try:
            self.assertEqual(self.observation.run(nest, depth), depth)
            self.assertEqual(self.observation.reason != "", depth > 700, self.observation.reason)
            for _ in range(2):
                self.assertEqual(self.observation.run(nest, 100), 100)
                self.assertEqual(self.observation.reason, "")
        finally:
            sys.setrecursionlimit(limit)
        self.observation.run(time.time)
        self.assertIn("time.time", self.observation.reason)

    def test_deep_recursion_on_another_thread(self):
        """What another thread's observation did not hear of is not taken for nothing."""
        if sys.version_info < (3, 11):
            self.skipTest("calls always take room on the stack")
        inside, go = [], []
        reasons = []

        def nest(depth):
            return nest(depth - 1) + 1 if depth else 0

        def work():
            observation = Observation()
            observation.begin()
            inside.append(1)
            while not go:  # waiting would be an effect
                sum(range(1000))
            observation.end()
            reasons.append(observation.reason)

        thread = threading.Thread(target=work)
        thread.start()
        while not inside:
            time.sleep(0.01)
        self.observation.run(nest, 800)
        self.assertNotEqual(self.observation.reason, "")
        self.observation.run(nest, 1)
        self.assertEqual(self.observation.reason, "")
        go.append(1)
        thread.join()
        self.assertIn("nests calls deeply", reasons[0])

    def test_two_threads_observe(self):
        barrier, reasons = threading.Barrier(2), {}

        def work(name, function):
            observation = Observation()
            self.assertTrue(observation.begin())
            for _ in range(200):
                function()
            observation.end()
            reasons[name] = observation.reason
            barrier.wait()

        functions = {"clean": lambda: sum(range(999)), "reads": lambda: time.time()}
        threads = [threading.Thread(target=work, args=item) for item in functions.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(reasons["clean"], "")
        self.assertIn("time.time", reasons["reads"])

    def test_other_threads_do_not_count(self):
        stop, turns = threading.Event(), []

        def work():
            while not stop.is_set():
                turns.append(time.time())

        def spin():
            start = len(turns)
            while len(turns) < start + 3:
                sum(range(1000))

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(5):
                self.observation.run(spin)
                self.assertEqual(self.observation.reason, "")
        finally:
            stop.set()
            thread.join()

    def test_nested_is_not_observed(self):
        inner = Observation()
        self.observation.run(lambda: self.assertFalse(inner.begin()))
        self.assertEqual(self.observation.reason, "")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
