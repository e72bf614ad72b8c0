"""Regions around module calls, backward passes, optimizer steps and named functions, on the test double of PyTorch."""
import gc
import inspect
import pickle
import sys
import threading
import unittest

import probe
from probe import LIBRARY, Thread

torch = None  # imported late, after the first driver calls


def launch(*_):
    LIBRARY.probe_launch()


def outline(thread):
    """Events as nested text: "region 'name' type number" and "call", relative to the first region's number."""
    lines, depth, first = [], 0, None
    for event in thread.events:
        if event[0] == "end":
            depth -= 1
            lines.append("  " * depth + "end" + (" raised" if event[3] else ""))
        elif event[0] == "begin":
            kind, name, type_name, _ = event[1]
            first = event[2] if first is None else first
            number = " #%d" % (event[2] - first) if event[2] else ""
            lines.append("  " * depth + "%s '%s' %s%s" % (kind, name, type_name.split(":")[1], number))
            depth += 1
        elif event[0] == "attach":
            lines.append("  " * depth + "attach" + ("" if event[1] else " none"))
        else:
            lines.append("  " * depth + "call")
    return lines


class Recording:
    def __enter__(self):
        self.start = Thread().end
        return self

    def __exit__(self, *_):
        self.thread = Thread(start=self.start)
        self.lines = outline(self.thread)


def make_modules():
    class Leaf(torch.nn.Module):
        def forward(self, value=None):
            launch()
            return value

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.projection = Leaf()

        def forward(self, value=None):
            return self.projection(value)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = torch.nn.Sequential(Attention(), Attention())
            self.head = Leaf()

        def forward(self, value=None, fail=None):
            value = self.blocks(value)
            if fail is not None:
                raise fail
            return self.head(value)

    for made in (Leaf, Attention, Model):
        made.__qualname__ = made.__name__
    return Leaf, Attention, Model


FORWARD = [
    "module '' Model #0",
    "  module 'blocks' Sequential",
    "    module 'blocks.0' Attention",
    "      module 'blocks.0.projection' Leaf",
    "        call",
    "      end",
    "    end",
    "    module 'blocks.1' Attention",
    "      module 'blocks.1.projection' Leaf",
    "        call",
    "      end",
    "    end",
    "  end",
    "  module 'head' Leaf",
    "    call",
    "  end",
    "end",
]


class RegionsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.leaf, cls.attention, cls.model = make_modules()

    def test_module_tree(self):
        model = self.model()
        for _ in range(3):
            with Recording() as recording:
                self.assertEqual(model(7), 7)
            self.assertEqual(recording.lines, FORWARD)
        with Recording() as recording:
            model(7)
            model(value=7)
        self.assertEqual(recording.lines, FORWARD + [FORWARD[0].replace("#0", "#1")] + FORWARD[1:])
        # The outermost call knows who called it.
        self.assertEqual(recording.thread.frames and [e for e in recording.thread.events][0][0], "begin")
        stack = recording.thread.stack(recording.thread.events[0][3])
        self.assertEqual(stack[0][1].split(".")[-1], "test_module_tree")

    def test_called_by_other_ways(self):
        model = self.model()
        for call in (
            lambda: model.__call__(1),
            lambda: list(map(model, [1])),
            lambda: torch.nn.Module.__call__(*(model, 1)),
            lambda: model._wrapped_call_impl(*(1,)),
        ):
            with Recording() as recording:
                call()
            if probe.version() == (3, 11) and recording.lines[0] != FORWARD[0]:
                continue  # a direct call between Python functions is inlined there
            self.assertEqual(recording.lines, FORWARD)

    def test_exceptions(self):
        model = self.model()
        for error in (ValueError("x"), KeyboardInterrupt(), GeneratorExit(), SystemExit(3)):
            with Recording() as recording:
                with self.assertRaises(type(error)) as caught:
                    model(fail=error)
                self.assertIs(caught.exception, error)
                launch()
            self.assertEqual(recording.lines, FORWARD[:13] + ["end raised", "call"])
        with Recording() as recording:
            model()
        self.assertEqual(recording.lines, FORWARD)

    def test_exception_being_handled_is_kept(self):
        try:
            raise ValueError("kept")
        except ValueError as error:
            self.model()()
            self.assertIs(sys.exc_info()[1], error)

    def test_a_range_that_begins_and_ends_inside(self):
        """A call that began within a range ends within the trace, and the next region is one of its own."""
        model = self.model()
        with Recording() as recording:
            LIBRARY.probe_pause(1)
            model(1)
            LIBRARY.probe_pause(0)

            class Outer(torch.nn.Module):
                def forward(self, pause):
                    launch()
                    LIBRARY.probe_pause(pause)
                    launch()

            Outer.__qualname__ = "Outer"
            outer = Outer()
            outer(1)
            LIBRARY.probe_pause(0)
            outer(0)
            LIBRARY.probe_pause(1)
            outer(0)  # begins outside: no region, and what it launches within the range is in none
        LIBRARY.probe_pause(0)
        region = ["module '' Outer #%d", "  call", "end"]
        self.assertEqual(recording.lines, [region[0] % 0, *region[1:], region[0] % 1, "  call", *region[1:], "call"])

    def test_recursion(self):
        class Again(torch.nn.Module):
            def forward(self, depth):
                return self(depth - 1) if depth else launch()

        with Recording() as recording:
            Again()(2)
        self.assertEqual([line.strip().split(" ")[0] for line in recording.lines], ["module"] * 3 + ["call"] + ["end"] * 3)
        self.assertEqual([event[2] != 0 for event in recording.thread.events if event[0] == "begin"], [True, False, False])

    def test_generator_inside(self):
        leaf = self.leaf()

        class Yields(torch.nn.Module):
            def forward(self):
                def items():
                    for _ in range(2):
                        yield leaf()

                return items()

        with Recording() as recording:
            items = Yields()()
            next(items)
            launch()
            next(items)
        names = [line.split(" ")[0] for line in recording.lines if line[0] != " "]
        self.assertEqual(names, ["module", "end", "module", "end", "call", "module", "end"])

    def test_positions_inside_open_modules(self):
        """Inside a module call only the frames below it are read anew: every stack must still be whole, and right."""
        taken = []

        def take():
            taken.append((LIBRARY.probe_stack(), probe.python_stack(sys._getframe())))

        def indirect():
            take()

        class Inner(torch.nn.Module):
            def forward(self, way):
                take()
                way()
                return [way() for _ in range(2)]

        class Outer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Inner()

            def forward(self):
                take()
                self.inner(take)
                self.inner(indirect)
                for way in (indirect, take):
                    self.inner(
                        way,
                    )
                    way()

        class Again(torch.nn.Module):
            def forward(self, depth):
                take()
                if depth:
                    self(depth - 1)
                    take()

        class Silent(torch.nn.Module):
            """The first look is taken with up to so many calls open whose stacks nobody knows."""

            def forward(self, depth):
                if depth:
                    self(depth - 1)
                    if depth % 3 == 0:
                        take()
                else:
                    take()
                    indirect()

        outer, again, silent = Outer(), Again(), Silent()
        for _ in range(2):
            take()
            outer()
            again(3)
            again(100)
            for depth in (1, 2, 3, 7, 8, 9, 10, 70):
                silent(depth)
            take()
        with self.assertRaises(RecursionError):
            again(10**6)
        del taken[800:]
        outer()
        take()
        thread = Thread()
        self.assertGreater(len(taken), 500)
        for frame, expected in taken:
            self.assertEqual(thread.stack(frame), expected[:512] if len(expected) > 512 else expected)

    def test_part_called_alone_keeps_its_path(self):
        model = self.model()
        with Recording() as recording:
            model.head(1)
        self.assertEqual(recording.lines[0], "module '' Leaf #0")
        model()
        with Recording() as recording:
            model.head(1)
        self.assertEqual(recording.lines[0], "module 'head' Leaf #0")

    def test_module_added_later(self):
        model = self.model()
        model()
        model.blocks.add_module("2", self.attention())
        with Recording() as recording:
            model()
        self.assertIn("    module 'blocks.2' Attention", recording.lines)

    def test_address_reused_by_another_module(self):
        class Other(torch.nn.Module):
            def forward(self):
                launch()

        addresses, reused = set(), 0
        for i in range(200):
            module = (self.leaf, Other)[i % 2]()
            reused += id(module) in addresses
            addresses.add(id(module))
            with Recording() as recording:
                module()
            self.assertEqual(recording.lines[0].split(" ")[2], ("Leaf", "%s" % Other.__qualname__)[i % 2])
            del module
        self.assertGreater(reused, 10, "the test did not reuse an address")

    def test_shared_and_cyclic_modules(self):
        model = self.model()
        model.alias = model.head
        model.blocks._modules["0"]._modules["up"] = None
        model.head.__dict__["_modules"]["cycle"] = model
        with Recording() as recording:
            model()
        self.assertEqual(recording.lines, FORWARD)
        model.head._modules.clear()

    def test_threads(self):
        model, results = self.model(), []

        def work():
            start = Thread().end
            for _ in range(20):
                model(1)
            results.append(Thread(start=start))

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        numbers = set()
        for result in results:
            self.assertEqual([line.split("#")[0] for line in outline(result)], [l.split("#")[0] for l in FORWARD] * 20)
            numbers |= {event[2] for event in result.events if event[0] == "begin" and event[2]}
        self.assertEqual(len(numbers), 6 * 20)

    def test_backward_and_other_threads(self):
        def native():
            LIBRARY.probe_worker_launch()

        LIBRARY.probe_worker_launch()
        worker = LIBRARY.probe_threads() - 1
        start = Thread(worker).end
        with Recording() as recording:
            torch.Tensor(launch, native).backward()
            native()
        self.assertEqual(recording.lines, ["backward 'backward' backward #0", "  call", "end"])
        other = Thread(worker, start)
        self.assertEqual(outline(other), ["attach", "call", "attach none", "call"])
        self.assertEqual(other.events[0][1], recording.thread.events[0][2])

    def test_python_thread_is_not_attached(self):
        seen = []

        def work():
            start = Thread().end
            launch()
            seen.append(Thread(start=start))

        def concurrently():
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

        torch.Tensor(concurrently).backward()
        self.assertEqual(outline(seen[0]), ["call"])

    def test_concurrent_backwards_attach_nobody(self):
        LIBRARY.probe_worker_launch()
        worker = LIBRARY.probe_threads() - 1
        start = Thread(worker).end
        inside, go = threading.Event(), threading.Event()
        other = threading.Thread(target=lambda: torch.Tensor(inside.set, go.wait).backward())
        other.start()
        inside.wait()
        torch.Tensor(LIBRARY.probe_worker_launch).backward()
        self.assertEqual(outline(Thread(worker, start)), ["call"])
        go.set()
        other.join()
        torch.Tensor(LIBRARY.probe_worker_launch).backward()
        self.assertEqual(outline(Thread(worker, start)), ["call", "attach", "call"])

    def test_backward_inside_a_module(self):
        class Step(torch.nn.Module):
            def forward(self):
                torch.Tensor(launch).backward()

        with Recording() as recording:
            Step()()
        self.assertEqual(recording.lines[1:], ["  backward 'backward' backward", "    call", "  end", "end"])

    def test_backward_raises(self):
        def fail():
            raise ValueError("in backward")

        with Recording() as recording:
            with self.assertRaisesRegex(ValueError, "in backward"):
                torch.Tensor(fail).backward()
        self.assertEqual(recording.lines, ["backward 'backward' backward #0", "end raised"])

    def test_optimizers(self):
        for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
            optimizer = kind(launch)
            torch.Tensor().backward()  # looks for new steps
            for _ in range(3):
                with Recording() as recording:
                    optimizer.step()
                self.assertEqual(recording.lines, ["optimizer 'step' %s #0" % kind.__name__, "  call", "end"])
        with Recording() as recording:
            torch.optim.SGD(launch).step(closure=lambda: torch.Tensor(launch).backward())
        self.assertEqual(
            recording.lines,
            ["optimizer 'step' SGD #0", "  backward 'backward' backward", "    call", "  end", "  call", "end"],
        )

    def test_nothing_shows(self):
        module = torch.nn.Module
        self.assertIs(type(module.__call__), type(launch))
        self.assertIs(module.__call__, module._wrapped_call_impl)
        self.assertIn("_call_impl", inspect.getsource(module.__call__))
        self.assertEqual(str(inspect.signature(module.__call__)), "(self, *args, **kwargs)")
        self.assertNotIn("__wrapped__", module.__call__.__dict__)
        self.assertEqual(pickle.loads(pickle.dumps(torch.nn.modules.module.Module)), module)
        self.assertEqual(torch._C._ImperativeEngine.run_backward.__name__, "run_backward")

    def test_call_replaced_and_restored(self):
        module = torch.nn.Module
        original = module.__call__

        def patched(self, *args, **kwargs):
            return original(self, *args, **kwargs)

        model = self.model()
        module.__call__ = patched
        try:
            with Recording() as recording:
                model()
            self.assertEqual(recording.lines, FORWARD)
        finally:
            module.__call__ = original
        with Recording() as recording:
            model()
        self.assertEqual(recording.lines, FORWARD)

    def test_modules_die(self):
        import weakref

        model = self.model()
        model()
        gone = weakref.ref(model)
        del model
        gc.collect()
        self.assertIsNone(gone())

    def test_named_functions(self):
        import named

        named_calls = [
            (lambda: list(map(named.generate, [launch])), "function '' generate #0"),
            (lambda: named.Runner().run(launch), "function '' Runner.run #0"),
            (lambda: list(map(named.Runner.static, [launch])), "function '' Runner.static #0"),
        ]
        for call, first in named_calls:
            with Recording() as recording:
                call()
            self.assertEqual(recording.lines, [first, "  call", "end"])
        with Recording() as recording:
            named.skipped(launch)
            named.Excluded()(launch)
            named.other(launch)
        self.assertEqual(recording.lines, ["call", "call", "call"])


if __name__ == "__main__":
    probe.settle()
    import torch  # noqa: F811
    import named  # noqa: F401

    probe.settle()
    unittest.main(argv=sys.argv[:1], verbosity=1)
