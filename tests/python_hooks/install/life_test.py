"""Start, end and odd moments of the interpreter, each in a process of its own."""
import os
import signal
import subprocess
import sys
import textwrap
import unittest

import probe  # noqa: F401  (checks that the probe is there)



def run(source, **environment):
    variables = dict(os.environ, **environment)
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        env=variables,
        timeout=60,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )


class LifeTest(unittest.TestCase):
    def check(self, source, output="", status=0, errors="", **environment):
        done = run(source, **environment)
        self.assertEqual((done.stdout, done.stderr, done.returncode), (output, errors, status))

    def test_off_before_the_first_driver_call(self):
        self.check("import probe; print(probe.LIBRARY.probe_stack())", "0\n")

    def test_nothing_at_exit(self):
        self.check(
            """
            import atexit, probe
            class Late:
                def __del__(self): print("del", probe.LIBRARY.probe_stack())
            late = Late()
            atexit.register(lambda: print("before", probe.LIBRARY.probe_stack()))
            probe.settle()
            print(probe.LIBRARY.probe_stack() != 0)
            """,
            "True\nbefore 0\ndel 0\n",
        )

    def test_main_thread_that_only_waits(self):
        self.check(
            """
            import threading, time, probe
            seen = []
            def work():
                end = time.monotonic() + 30
                while not probe.LIBRARY.probe_stack() and time.monotonic() < end:
                    probe.LIBRARY.probe_launch()
                    time.sleep(0.001)
                seen.append(probe.LIBRARY.probe_stack() != 0)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            print(seen)
            """,
            "[True]\n",
        )

    def test_end_while_a_thread_of_ours_installs(self):
        for milliseconds in range(190, 320, 10):
            self.check(
                f"""
                import threading, time, probe, torch
                def work():
                    end = time.monotonic() + {milliseconds} / 1000
                    while time.monotonic() < end:
                        probe.LIBRARY.probe_launch()
                        time.sleep(0.0002)
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
                """
            )

    def test_daemon_threads_at_exit(self):
        for _ in range(5):
            self.check(
                """
                import threading, time, probe
                probe.settle(0.3)
                def work():
                    while True:
                        probe.LIBRARY.probe_launch()
                for _ in range(4):
                    threading.Thread(target=work, daemon=True).start()
                time.sleep(0.05)
                """
            )

    def test_module_call_unwound_in_a_daemon_thread(self):
        self.check(
            """
            import threading, time, probe, torch
            probe.settle(0.3)
            class Forever(torch.nn.Module):
                def forward(self):
                    while True:
                        probe.LIBRARY.probe_launch()
                        time.sleep(0.001)
            threading.Thread(target=Forever(), daemon=True).start()
            time.sleep(0.05)
            """
        )

    def test_forked_child_is_inert(self):
        self.check(
            """
            import os, probe, torch
            probe.settle(0.3)
            class Module(torch.nn.Module):
                def forward(self): probe.LIBRARY.probe_launch()
            module = Module()
            module()
            before = probe.Thread().end
            child = os.fork()
            if child == 0:
                module()
                torch.Tensor(module).backward()
                os._exit(0 if probe.Thread().end == before and probe.LIBRARY.probe_stack() == 0 else 3)
            print(os.waitpid(child, 0)[1], probe.LIBRARY.probe_stack() != 0)
            """,
            "0 True\n",
        )

    def test_exception_of_a_signal_handler_goes_on(self):
        # The alarm may strike while the hooks are installed; it must reach the program wherever it does.
        self.check(
            """
            import signal, time, probe
            def handler(*_): raise TimeoutError("alarm")
            signal.signal(signal.SIGALRM, handler)
            def spin(seconds):
                signal.setitimer(signal.ITIMER_REAL, seconds)
                end = time.monotonic() + 2
                while time.monotonic() < end:
                    probe.LIBRARY.probe_driver_call()
            caught = 0
            for i in range(30):
                try:
                    spin(0.0005 + i * 0.0003)
                except TimeoutError:
                    caught += 1
            probe.settle(0.3)
            print(caught, probe.LIBRARY.probe_stack() != 0)
            """,
            "30 True\n",
        )

    def test_keyboard_interrupt_in_a_module(self):
        done = run(
            """
            import os, signal, time, probe, torch
            probe.settle(0.3)
            class Module(torch.nn.Module):
                def forward(self):
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(5)
            Module()()
            """
        )
        self.assertEqual(done.returncode, -signal.SIGINT)
        self.assertIn("KeyboardInterrupt", done.stderr)

    def test_deep_recursion_at_the_start(self):
        self.check(
            """
            import sys, probe
            def down():
                probe.LIBRARY.probe_driver_call()
                down()
            try:
                down()
            except RecursionError:
                print("as ever")
            probe.settle(0.4)
            print(probe.LIBRARY.probe_stack() != 0)
            """,
            "as ever\nTrue\n",
        )

    def test_tracing_program(self):
        self.check(
            """
            import sys, probe
            def trace(frame, event, argument): return trace
            sys.settrace(trace)
            probe.settle(0.3)
            here = probe.LIBRARY.probe_stack(); line = sys._getframe().f_lineno
            sys.settrace(None)
            print(probe.Thread().stack(here)[0][3] == line)
            """,
            "True\n",
        )

    def test_unexpected_layouts_turn_positions_off(self):
        for which in range(9):
            for by in (-8, 8, 16):
                with self.subTest(which=which, by=by):
                    done = run(
                        """
                        import probe
                        moved = probe.HOLDING.probe_move_offset(%d, %d)
                        probe.settle(0.15)
                        print(moved, probe.LIBRARY.probe_stack())
                        """
                        % (which, by)
                    )
                    self.assertEqual(done.returncode, 0, done.stderr)
                    if done.stdout.startswith("1"):
                        self.assertEqual(done.stdout, "1 0\n")
                        self.assertIn("no Python positions", done.stderr)

    def test_python_without_torch(self):
        self.check(
            "import probe, sys; probe.settle(0.3); print(probe.LIBRARY.probe_stack() != 0, 'torch' in sys.modules)",
            "True False\n",
        )

    def test_stacks_off_and_leaf(self):
        source = """
        import probe, sys
        probe.settle(0.3)
        def here(): return probe.LIBRARY.probe_stack()
        frame = here()
        print(len(probe.Thread().stack(frame)))
        """
        self.check(source, "0\n", GRAPE_STACKS="off")
        self.check(source, "1\n", GRAPE_STACKS="leaf")
        self.check(source, "2\n", GRAPE_STACKS="python")

    def test_regions_without_stacks(self):
        self.check(
            """
            import probe, torch
            probe.settle(0.3)
            class Module(torch.nn.Module):
                def forward(self): pass
            Module()()
            print([event[0] for event in probe.Thread().events])
            """,
            "['begin', 'end']\n",
            GRAPE_STACKS="off",
        )

    def test_disabled(self):
        self.check(
            "import probe; probe.settle(0.3); print(probe.LIBRARY.probe_stack())", "0\n", GRAPE_DISABLE="1"
        )


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
