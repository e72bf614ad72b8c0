"""What the interpreter reports of functions and of modules' names (3.12 and later) is not looked at in each call, and
every change is seen all the same: once more as long as it lasts, and no more once it is taken back.

With the argument "taken" others have taken all watchers that the interpreter gives.
"""

import ctypes
import os
import subprocess
import sys
import unittest

from made_modules import Base, module, take

VERSION = sys.version_info[:2]
TAKEN = sys.argv[1:] == ["taken"]
CALLBACKS = {
    "PyDict_AddWatcher": ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 3)(lambda *arguments: 0),
    "PyFunction_AddWatcher": ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 2)(lambda *arguments: 0),
}


def take_all():
    """Before anybody asks what is reported."""
    for name, callback in CALLBACKS.items():
        add = getattr(ctypes.pythonapi, name)
        count = 0
        try:
            while add(callback) >= 0:
                count += 1
        except RuntimeError:
            pass
        assert count > 0, name


class ReportsTest(Base):
    def setUp(self):
        self.library = module(
            """
            LEVEL = 1
            def first(x, scale=1, *, more=2): return scale + more
            def second(x, scale=5, *, more=6): return 0
            def make():
                value = 1
                def closed(x): return value
                def set_value(to):
                    nonlocal value
                    value = to
                return closed, set_value
            closed, set_value = make()
            def layer(x): return first(x), closed(x), LEVEL
            """,
            library=True,
        )
        users = module("import %(lib)s as lib\ndef run(): return lib.layer(1)" % {"lib": self.library.__name__})
        self.guard = take(users.run)

    def seen(self, change, back):
        """Each time it is asked for, until it is taken back."""
        for _ in range(3):
            self.assertTrue(self.guard.holds())
            self.assertTrue(self.guard.holds())
            change()
            for _ in range(3):
                self.assertFalse(self.guard.holds())
            back()

    def test_functions(self):
        first, second = self.library.first, self.library.second
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            before = getattr(first, name)
            self.seen(lambda: setattr(first, name, getattr(second, name)), lambda: setattr(first, name, before))
        self.assertTrue(self.guard.holds())

    def test_closures(self):
        self.seen(lambda: self.library.set_value(2), lambda: self.library.set_value(1))
        cell = self.library.closed.__closure__[0]
        self.seen(lambda: setattr(cell, "cell_contents", 3), lambda: setattr(cell, "cell_contents", 1))

    def test_names(self):
        first = self.library.first
        self.seen(lambda: setattr(self.library, "LEVEL", 2), lambda: setattr(self.library, "LEVEL", 1))
        self.seen(lambda: delattr(self.library, "first"), lambda: setattr(self.library, "first", first))

    def test_several_at_once(self):
        """One change is taken back, the other is still there."""
        first, code = self.library.first, self.library.first.__code__
        first.__code__ = self.library.second.__code__
        self.library.LEVEL = 2
        self.assertFalse(self.guard.holds())
        self.library.LEVEL = 1
        self.assertFalse(self.guard.holds())
        self.assertFalse(self.guard.holds())
        self.library.LEVEL = 2
        first.__code__ = code
        self.assertFalse(self.guard.holds())
        self.assertFalse(self.guard.holds())
        self.library.LEVEL = 1
        self.assertTrue(self.guard.holds())

    def test_others_change(self):
        """What nobody names changes all the time: more often than reports are taken, too."""
        def other(x, scale=1): return scale
        for n in range(5000):
            self.library.other = n
            other.__defaults__ = (n,)
            if n % 500 == 0:
                self.assertTrue(self.guard.holds())
        self.assertTrue(self.guard.holds())
        self.seen(lambda: setattr(self.library, "LEVEL", 2), lambda: setattr(self.library, "LEVEL", 1))
        self.test_functions()

    def test_two_guards(self):
        """Each sees what came since it was asked last."""
        users = module("import %(lib)s as lib\ndef run(): return lib.first(1)" % {"lib": self.library.__name__})
        other = take(users.run)
        before = self.library.first.__defaults__
        self.assertTrue(self.guard.holds() and other.holds())
        self.library.first.__defaults__ = (9,)
        self.assertFalse(self.guard.holds())
        self.assertFalse(other.holds())
        self.library.first.__defaults__ = before
        self.assertTrue(other.holds())
        self.assertTrue(self.guard.holds())

    @unittest.skipIf(VERSION < (3, 12) or TAKEN, "the same")
    def test_all_taken(self):
        done = subprocess.run([sys.executable, os.path.abspath(__file__), "taken"], stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stderr.decode())


if __name__ == "__main__":
    if TAKEN:
        take_all()
    done = unittest.main(argv=sys.argv[:1], exit=False)
    sys.stderr.flush()
    os._exit(0 if done.result.wasSuccessful() else 1)  # functions end after those who watch them here
