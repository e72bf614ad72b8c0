"""Frames read without the GIL against sys._getframe, in an interpreter with the probe preloaded."""
import asyncio
import gc
import sys
import threading
import unittest

import probe
from probe import HOLDING, LIBRARY, Thread, python_stack


def here():
    """The stack as the probe sees it and as Python sees it, taken on one line."""
    return LIBRARY.probe_stack(), HOLDING.probe_stack(), LIBRARY.probe_leaf(), python_stack(sys._getframe())


class PositionsTest(unittest.TestCase):
    def setUp(self):
        self.assertNotEqual(LIBRARY.probe_stack(), 0, "positions are off")

    def check(self, taken):
        free, holding, leaf, expected = taken
        thread = Thread()
        # The last columns differ by instruction, not by line.
        self.assertEqual(thread.stack(free), expected)
        self.assertEqual(thread.stack(holding), expected)
        self.assertEqual(thread.stack(leaf), expected[:1])

    def test_version(self):
        self.assertEqual(LIBRARY.probe_version().decode(), sys.version[:63])

    def test_plain_call(self):
        self.check(here())

    def test_call_over_several_lines(self):
        def argument():
            return 1

        def inner(*_, **__):
            return here()

        self.check(
            inner(
                argument(),
                2,
                key=argument(),
            )
        )

    def test_nested_and_recursive(self):
        def down(depth):
            if depth == 0:
                return here()
            if depth % 2:
                return down(depth - 1)
            return (lambda: down(depth - 1))()

        for depth in (1, 5, 30, 3, 40, 0):
            self.check(down(depth))

    def test_generators(self):
        def inner():
            yield here()

            yield here()

        def outer():
            yield from inner()
            for taken in inner():
                yield taken

        for taken in outer():
            self.check(taken)
        for taken in (here() for _ in range(2)):
            self.check(taken)

    def test_comprehensions(self):
        for taken in [here() for _ in range(3)]:
            self.check(taken)
        for taken in {i: here() for i in range(3)}.values():
            self.check(taken)
        self.check([[here() for _ in range(2)][1] for _ in range(2)][0])

    def test_async(self):
        async def leaf():
            await asyncio.sleep(0)
            return here()

        async def both():
            async for taken in items():
                self.check(taken)
            return await asyncio.gather(leaf(), leaf())

        async def items():
            yield here()
            await asyncio.sleep(0)
            yield here()

        for taken in asyncio.run(both()):
            self.assertGreater(len(taken[3]), 3)
            self.check(taken)

    def test_class_bodies_and_methods(self):
        class Body:
            taken = here()

            def __init__(self):
                self.made = here()

            @property
            def attribute(self):
                return here()

            def __getitem__(self, item):
                return here()

        self.check(Body.taken)
        for _ in range(20):  # until the interpreter has specialised the call
            body = Body()
        self.check(body.made)
        self.check(body.attribute)
        self.check(body[0])

    def test_called_from_c(self):
        self.check(max([1, 2], key=lambda _: 1) and list(map(lambda _: here(), [0]))[0])
        taken = []
        sorted([2, 1], key=lambda _: taken.append(here()) or 0)
        self.check(taken[0])

    def test_exceptions(self):
        try:
            raise ValueError
        except ValueError:
            self.check(here())
        finally:
            self.check(here())

    def test_executed_code(self):
        space = {"here": here}
        exec("def f():\n\n  return here()\n", space)
        self.check(space["f"]())
        exec(compile("x = [\n" * 1 + "here()][0]\n", "file-\u00e9.py", "exec"), space)
        self.check(space["x"])
        self.check(eval("here()", space))

    def test_names_of_every_width(self):
        for name in ("ascii", "caf\u00e9", "\u8461\u8404", "\U0001d4d6"):
            space = {"here": here}
            exec(compile("def %s(): return here()" % name, "/tmp/%s.py" % name, "exec"), space)
            self.check([v for k, v in space.items() if k.isidentifier() and callable(v) and v is not here][0]())

    def test_long_functions(self):
        # Jumps of more than 255 bytes and 127 lines in the line tables, lines that go back, extended arguments.
        body = "def f(a=0):\n"
        body += "".join("  v%d = a + %d\n" % (i, i) for i in range(400)) + "\n" * 300
        body += "  x = (here(),\n" + "\n" * 200 + "   [v%d for _ in [1]])\n  return x[0], here()\n" % 399
        space = {"here": here}
        exec(compile(body, "long.py", "exec"), space)
        for taken in space["f"]():
            self.check(taken)

    def test_deep_recursion_keeps_the_innermost(self):
        def down(depth):
            return down(depth - 1) if depth else here()

        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(3000)
        try:
            free, holding, leaf, expected = down(1500)
            thread = Thread()
            self.assertEqual(thread.stack(free), expected[: len(thread.stack(free))])
            self.assertGreaterEqual(len(thread.stack(free)), 500)
            self.assertEqual(thread.stack(leaf), expected[:1])
        finally:
            sys.setrecursionlimit(limit)
        self.check(here())

    def test_threads(self):
        failures = []

        def work(seed):
            def down(depth):
                return down(depth - 1) if depth else here()

            try:
                for i in range(200):
                    free, holding, leaf, expected = down((i * seed) % 17)
                    if i % 50 == 0:
                        thread = Thread()
                        assert thread.stack(free) == thread.stack(holding) == expected
            except BaseException as error:  # noqa: B902
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_thread_without_python(self):
        before = LIBRARY.probe_threads()
        LIBRARY.probe_native_launch(2)
        self.assertEqual(LIBRARY.probe_threads(), before + 1)
        self.assertEqual(Thread(before).events, [("call", 0), ("call", 0)])

    def test_code_freed_and_reused(self):
        addresses = set()
        reused = 0
        for i in range(300):
            space = {"here": here}
            exec(compile("\n" * (i % 7) + "def f%d():\n  return here()\n" % i, "file%d.py" % i, "exec"), space)
            function = space["f%d" % i]
            reused += id(function.__code__) in addresses
            addresses.add(id(function.__code__))
            self.check(function()) if i % 10 == 0 else function()
            taken = function()
            if i % 10 == 0:
                self.check(taken)
            else:
                self.assertEqual(Thread().stack(taken[0])[1][:3], ("file%d.py" % i, "f%d" % i, i % 7 + 1))
            del function, space, taken
            gc.collect(0)
        self.assertGreater(reused, 10, "the test did not reuse an address")

    def test_same_position_has_one_id(self):
        def again():
            return LIBRARY.probe_stack()

        ids = {again() for _ in range(50)}
        self.assertEqual(len(ids), 1)
        # Also when some code object that was seen has died in between.
        ids = set()
        for i in range(5):
            exec(compile("here()", "dies%d" % i, "exec"), {"here": here})
            gc.collect(0)
            ids.add(again())
        self.assertEqual(len(ids), 1)

    def test_no_room_for_definitions(self):
        def fresh():
            return here()

        LIBRARY.probe_full(1)
        try:
            lost = fresh()
        finally:
            LIBRARY.probe_full(0)
        self.assertEqual(lost[0], 0)
        self.check(fresh())


if __name__ == "__main__":
    probe.settle()
    unittest.main(argv=sys.argv[:1], verbosity=1)
