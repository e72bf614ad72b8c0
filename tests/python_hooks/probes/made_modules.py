"""Modules of the user's and of installed libraries, made for a test, and guards of what their code names."""
import opcode  # noqa: F401  (the guards need it, and import nothing)
import os
import sys
import tempfile
import textwrap
import types
import unittest

from executed import Globals, Observation

FOLDER = tempfile.mkdtemp()
COUNT = 0


def module(source, library=False, name=None):
    """A module of the user's, or of an installed library."""
    global COUNT
    COUNT += 1
    name = name or "made_%d" % COUNT
    path = os.path.join(FOLDER, "site-packages" if library else "project", *name.split(".")) + ".py"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    made = types.ModuleType(name)
    made.__file__ = path
    made.__package__ = name.rpartition(".")[0]
    sys.modules[name] = made
    exec(compile(textwrap.dedent(source), path, "exec"), made.__dict__)
    return made


def take(function, *arguments, calls=1):
    observation = Observation()
    for _ in range(calls):
        observation.run(function, *arguments)
    assert observation.reason == "", observation.reason
    return Globals(observation)


class Base(unittest.TestCase):
    def check(self, guard, change, seen, back=None):
        """Does `change()` make the guard fail, each time it is asked, and `back()` make it hold again?"""
        self.assertTrue(guard.holds(), "before: " + guard.change)
        change()
        self.assertEqual(guard.holds(), not seen, guard.change)
        self.assertEqual(guard.holds(), not seen, guard.change)
        if seen:
            self.assertTrue(guard.change)
        if back is not None:
            back()
            self.assertTrue(guard.holds(), "after: " + guard.change)

    def check_source(self, source, change, seen=True, back=None, library=False, run="run", calls=1):
        made = module(source, library)
        guard = take(getattr(made, run), calls=calls)
        change_it = (lambda: exec(textwrap.dedent(change), {"m": made, "sys": sys}))
        back_again = (lambda: exec(textwrap.dedent(back), {"m": made, "sys": sys})) if back else None
        self.check(guard, change_it, seen, back_again)
        return guard
