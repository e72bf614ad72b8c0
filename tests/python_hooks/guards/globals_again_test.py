"""Guards that share the plan of an earlier call: they see each change that a guard with a plan of its own sees. A plan is
shared only by calls of the same code, classes and functions, while all that it watches is as it was."""

import os
import sys
import unittest

from executed import Globals, globals_plans
from made_modules import Base, module, take

Globals.again = True
from globals_library_test import *  # noqa: E402, F403
from globals_test import *  # noqa: E402, F403

SHARES = sys.version_info >= (3, 11)  # before, frames do not name their functions


class SharedPlansTest(Base):
    def plans_of_next(self, function, *arguments):
        """The guard of another call, and how many plans were made for it: its second guard makes none where it can."""
        before = globals_plans()
        guard = take(function, *arguments)
        return guard, globals_plans() - before

    def check_shares(self, function, *arguments):
        first = take(function, *arguments)
        second, plans = self.plans_of_next(function, *arguments)
        self.assertEqual(plans, 0 if SHARES else 2)
        return first, second

    def check_alone(self, function, *arguments):
        second, plans = self.plans_of_next(function, *arguments)
        self.assertGreaterEqual(plans, 1)
        return second

    def test_equal_calls_share_a_plan(self):
        made = module("SCALE = 2\ndef scale(x): return x * SCALE\ndef run(x): return scale(x) + 1")
        first, second = self.check_shares(made.run, 3)
        made.SCALE = 5
        self.assertFalse(first.holds())
        self.assertFalse(second.holds())

    def test_a_name_that_was_set_in_between(self):
        made = module("SCALE = 2\ndef run(x): return x * SCALE")
        first = take(made.run, 3)
        made.SCALE = 5
        second = self.check_alone(made.run, 3)
        self.assertTrue(second.holds())
        self.assertFalse(first.holds())
        made.SCALE = 2
        self.assertFalse(second.holds())

    def test_other_code(self):
        made = module("A, B = 1, 2\ndef run(x): return B if x else A")
        guard = take(made.run, 0)  # the same code, whichever way it goes
        self.assertEqual(self.plans_of_next(made.run, 1)[1], 0 if SHARES else 2)
        other = module("A, B = 1, 2\ndef run(x): return B if x else A")
        self.check_alone(other.run, 0)
        self.assertTrue(guard.holds())

    @unittest.skipUnless(SHARES, "no global leads to the functions")
    def test_functions_of_one_code(self):
        made = module(
            """
            def make(value):
                def closed(): return value[0]
                return closed
            def run(f): return f()
            """
        )
        values = [1], [2]
        one, two = made.make(values[0]), made.make(values[1])
        first = take(made.run, one)
        second = self.check_alone(made.run, two)
        values[1][0] = 7
        self.assertFalse(second.holds())
        self.assertTrue(first.holds())

    @unittest.skipUnless(SHARES, "no global leads to the function")
    def test_a_function_that_took_the_place_of_another(self):
        made = module("def make(value):\n  return lambda: value[0]\ndef run(f): return f()")
        for number in range(4):  # likely at the same address
            value = [number]
            function = made.make(value)
            guard = take(made.run, function)
            made.holder = function
            self.assertTrue(guard.holds(), guard.change)
            del made.holder, function

    def test_what_a_librarys_class_is_given_later(self):
        library = module("class Base: pass\nclass Block(Base):\n  def forward(self): return 1", library=True)
        users = module("def run(block): return block.forward(), getattr(block, 'added', None)")
        block = library.Block()
        kept = take(users.run, block)
        library.Base.added = [3]
        second = self.check_alone(users.run, block)
        self.assertTrue(second.holds())
        library.Base.added = [4]
        self.assertFalse(second.holds())
        del kept

    def test_a_class_that_is_made_in_the_call(self):
        made = module(
            """
            def run():
                class Local:
                    def get(self): return 1
                return Local().get()
            """
        )
        kept = take(made.run)
        self.check_alone(made.run)
        del kept

    def test_classes_that_are_made_later(self):
        made = module("def run(part): return type(part).__settings__")
        one = type("One", (), {"__settings__": 1, "__module__": made.__name__})
        kept = take(made.run, one())
        self.check_alone(made.run, one())
        del kept

    def test_the_environment(self):
        made = module("import os\ndef run(): return os.environ.get('GRAPE_NO_SUCH_NAME')")
        kept = take(made.run)
        self.check_alone(made.run)
        os.environ["GRAPE_NO_SUCH_NAME"] = "1"
        self.assertFalse(kept.holds())
        del os.environ["GRAPE_NO_SUCH_NAME"]

    def test_no_plan_outlives_its_guards(self):
        made = module("SCALE = 2\ndef run(x): return x * SCALE")
        take(made.run, 1)
        self.assertEqual(self.plans_of_next(made.run, 1)[1], 1 if SHARES else 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
