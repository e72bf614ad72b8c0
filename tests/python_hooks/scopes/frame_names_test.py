"""What a frame id stands for, in words, without a trace: in an interpreter with the probe preloaded, in mode replay."""
import os
import sys
import threading
import unittest

import probe
from probe import LIBRARY

HERE = "/".join(os.path.abspath(__file__).split("/")[-2:])


def code_at(path, text, **names):
    space = dict(names)
    exec(compile(text, path, "exec"), space)
    return space


def stack():
    return LIBRARY.probe_stack()


def place(frame):
    return LIBRARY.probe_place(frame).decode()


class FrameNamesTest(unittest.TestCase):
    def setUp(self):
        self.assertNotEqual(stack(), 0, "positions are off")

    def name(self, function):
        return getattr(function.__code__, "co_qualname", function.__code__.co_name)

    def test_the_users_own_line(self):
        frame, line = stack(), sys._getframe().f_lineno
        # The innermost frame is stack()'s own.
        self.assertEqual(place(frame), "%s:%d in stack" % (HERE, stack.__code__.co_firstlineno + 1))
        frame, line = LIBRARY.probe_stack(), sys._getframe().f_lineno
        self.assertEqual(place(frame), "%s:%d in %s" % (HERE, line, self.name(self.test_the_users_own_line)))

    def test_nothing_known(self):
        self.assertEqual(place(0), "")
        self.assertEqual(place(0xFFFFFFF0), "")

    def test_pytorch_is_passed_over_and_named(self):
        torch = code_at("/x/site-packages/torch/nn/functional.py", "def norm(f):\n\n  return f()\n")
        layer = code_at("/x/site-packages/torch/nn/modules/norm.py", "def forward(f):\n  return norm(f)\n",
                        norm=torch["norm"])
        user = code_at("/home/u/app/net.py", "def run(f):\n\n\n  return forward(f)\n", forward=layer["forward"])
        # ctypes' function is called by PyTorch's code itself.
        self.assertEqual(place(user["run"](LIBRARY.probe_stack)),
                         "app/net.py:4 in run, by nn/functional.py:3 in norm")

    def test_other_packages_are_the_users(self):
        package = code_at("/x/dist-packages/transformers/masks.py", "def mask(f):\n return f()\n")
        self.assertEqual(place(package["mask"](LIBRARY.probe_stack)), "transformers/masks.py:2 in mask")

    def test_the_standard_library_is_passed_over(self):
        library = code_at("/usr/lib/python3.11/contextlib.py", "def inner(f):\n return f()\n")
        user = code_at("/home/u/app/net.py", "def run(f):\n return inner(f)\n", inner=library["inner"])
        self.assertEqual(place(user["run"](LIBRARY.probe_stack)), "app/net.py:2 in run")

    def test_after_the_code_has_died(self):
        frames = []
        for number in range(200):
            code = code_at("/home/u/app/made%d.py" % number, "def run(f):\n return f()\n")
            frames.append(code["run"](LIBRARY.probe_stack))
            del code
        for number, frame in enumerate(frames):
            self.assertEqual(place(frame), "app/made%d.py:2 in run" % number)

    def test_other_threads_have_their_own(self):
        seen = []

        def work():
            seen.append(place(1))
            seen.append(place(stack()))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual(seen, ["", "%s:%d in stack" % (HERE, stack.__code__.co_firstlineno + 1)])


if __name__ == "__main__":
    probe.settle()
    unittest.main(verbosity=1)
