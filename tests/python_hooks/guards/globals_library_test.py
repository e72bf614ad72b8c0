"""What code names of libraries, of the interpreter and of the process: each change of it is seen."""
import builtins
import contextvars
import functools
import importlib
import io
import logging
import os
import subprocess
import sys
import threading
import types
import unittest
import warnings

import made_modules
from executed import Globals, Observation, Refused
from made_modules import FOLDER, Base, module, take


class LibrariesTest(Base):
    def setUp(self):
        self.library = module(
            """
            LEVEL, LISTED, EMPTY, REGISTRY = 1, [1], {}, []
            def activation(x, scale=1): return scale
            def other(x, scale=1): return 0
            def layer(x): return activation(x), LEVEL, LISTED, EMPTY, REGISTRY
            def make():
                value, unused = 1, []
                def closed(x): return value
                def set_value(to):
                    nonlocal value
                    value = to
                return closed, set_value
            closed, set_value = make()
            class Block:
                limit = 3
                def __init__(self): self.x = 1
                def forward(self): return self.limit + self.step()
                def step(self): return 1
            class Wide(Block): pass
            """,
            library=True,
        )
        self.users = module(
            """
            import %(lib)s as lib
            import %(lib)s
            def named(): return lib.activation(1)
            def indirect(): return lib.layer(1)
            def closed(): return lib.closed(1)
            def chosen():
                from %(lib)s import activation
                return activation(1)
            def method(block): return block.forward()
            """
            % {"lib": self.library.__name__}
        )

    def test_monkey_patches(self):
        original = self.library.activation
        for run in (self.users.named, self.users.indirect, self.users.chosen):
            guard = take(run)
            self.check(
                guard,
                lambda: setattr(self.library, "activation", lambda x: 5),
                True,
                lambda: setattr(self.library, "activation", original),
            )
            self.assertIn(self.library.__name__ + ".activation", guard.change)

    def test_patched_twice_at_one_address(self):
        guard = take(self.users.named)
        for _ in range(20):
            self.library.activation = lambda x: 5
            self.assertFalse(guard.holds())

    def test_not_read(self):
        guard = take(self.users.named)
        self.check(guard, lambda: setattr(self.library, "LEVEL", 2), False)
        self.check(guard, lambda: setattr(self.library, "other", None), False)
        self.check(guard, lambda: setattr(self.library, "more", None), False)

    def test_functions_themselves(self):
        original = self.library.activation.__code__
        for run in (self.users.named, self.users.indirect):
            guard = take(run)
            self.check(
                guard,
                lambda: setattr(self.library.activation, "__code__", self.library.other.__code__),
                True,
                lambda: setattr(self.library.activation, "__code__", original),
            )
            self.check(
                guard,
                lambda: setattr(self.library.activation, "__defaults__", (7,)),
                True,
            )
            self.library.activation.__defaults__ = (1,)

    def test_closure_of_what_cannot_be_read(self):
        library = module(
            """
            import threading
            def make():
                lock, value = threading.Lock(), [1]
                def locked():
                    with lock: return value[0]
                return locked
            locked = make()
            """,
            library=True,
        )
        users = module("from %s import locked\ndef run(): return locked()" % library.__name__)
        original = users.locked
        self.check(take(users.run), lambda: setattr(users, "locked", library.make()), True,
                   lambda: setattr(users, "locked", original))

    def test_closure(self):
        guard = take(self.users.closed)
        self.check(guard, lambda: self.library.set_value(2), True, lambda: self.library.set_value(1))

    def test_globals_by_identity(self):
        guard = take(self.users.indirect)
        self.check(guard, lambda: setattr(self.library, "LEVEL", 2), True, lambda: setattr(self.library, "LEVEL", 1))
        listed = self.library.LISTED
        self.check(guard, lambda: setattr(self.library, "LISTED", [1]), True, lambda: setattr(self.library, "LISTED", listed))
        self.check(guard, lambda: listed.append(2), True, listed.pop)
        self.check(guard, lambda: listed.append(listed.pop()), False)

    def test_objects_that_a_library_keeps(self):
        """Which objects, not what they are like; of what it keeps for itself only whether there is anything."""
        library = module(
            """
            class Thing:
                def __init__(self): self.x = 1
            class Interface:
                _known = {"a": len}
                def __init__(self): self.own = {}
                def get(self, name): return self.own.get(name, self._known.get(name))
            THING, TABLE, INTERFACE = Thing(), {"a": Thing(), "b": [Thing()]}, Interface()
            _CACHE, _EMPTY = {"x": 1}, {}
            def run(): return THING, TABLE, _CACHE, _EMPTY, INTERFACE.get("a")
            """,
            library=True,
        )
        users = module("import %(lib)s as lib\ndef run(): return lib.run()" % {"lib": library.__name__})
        guard = take(users.run)
        thing, table, interface = library.Thing, library.TABLE, library.INTERFACE
        for change, seen, back in (
            (lambda: library._CACHE.update(a=1), False, lambda: library._CACHE.pop("a")),
            (lambda: library._EMPTY.update(a=1), True, library._EMPTY.clear),
            (lambda: setattr(library.THING, "x", 2), True, lambda: setattr(library.THING, "x", 1)),
            (lambda: setattr(library.THING, "x", 1.0), True, lambda: setattr(library.THING, "x", 1)),
            (lambda: table.update(c=1), True, lambda: table.pop("c")),
            (lambda: interface.own.update(a=max), True, interface.own.clear),
            (lambda: interface._known.update(a=max), True, lambda: interface._known.update(a=len)),
        ):
            self.check(guard, change, seen, back)
        self.check(take(users.run), lambda: table.update(a=thing()), True)

    def test_empty_containers_are_filled(self):
        for container, fill in ((self.library.EMPTY, lambda: self.library.EMPTY.update(a=1)),
                                (self.library.REGISTRY, lambda: self.library.REGISTRY.append(1))):
            self.check(take(self.users.indirect), fill, True, container.clear)

    def test_methods(self):
        library, block = self.library, self.library.Wide()
        step = library.Block.step
        for change, back in (
            (lambda: setattr(library.Block, "step", lambda self: 2), lambda: setattr(library.Block, "step", step)),
            (lambda: setattr(library.Wide, "step", lambda self: 2), lambda: delattr(library.Wide, "step")),
            (lambda: setattr(library.Block, "limit", 4), lambda: setattr(library.Block, "limit", 3)),
            (lambda: setattr(library.Wide, "__getattribute__", object.__getattribute__),
             lambda: delattr(library.Wide, "__getattribute__")),
        ):
            self.check(take(self.users.method, block), change, True, back)
        self.check(take(self.users.method, block), lambda: setattr(library, "Block", None), False)

    def test_module_replaced(self):
        guard = take(self.users.chosen)
        name, other = self.library.__name__, types.ModuleType(self.library.__name__)
        other.activation = self.library.activation
        self.check(guard, lambda: sys.modules.__setitem__(name, other), True,
                   lambda: sys.modules.__setitem__(name, self.library))

    def test_relative_import(self):
        package = "grape_package_%d" % made_modules.COUNT
        module("", name=package)
        sys.modules[package].__path__ = []
        helper = module("X = 1", name=package + ".helper")
        user = module("def run():\n  from .helper import X\n  return X\ndef whole():\n  from . import helper\n  return 1",
                      name=package + ".user")
        sys.modules[package].helper = helper
        self.check(take(user.run), lambda: setattr(helper, "X", 2), True, lambda: setattr(helper, "X", 1))
        self.check(take(user.whole), lambda: setattr(sys.modules[package], "helper", user), True,
                   lambda: setattr(sys.modules[package], "helper", helper))

    def test_builtins(self):
        original = builtins.len
        made = module("def run(): return len([1])")
        guard = take(made.run)
        self.check(guard, lambda: setattr(builtins, "len", lambda x: 5), True, lambda: setattr(builtins, "len", original))
        self.check(guard, lambda: setattr(made, "len", original), True, lambda: delattr(made, "len"))
        builtins.unrelated_name = 1
        self.assertTrue(guard.holds())
        del builtins.unrelated_name
        self.assertTrue(guard.holds())

    def test_things_put_into_its_class(self):
        source = """
            class Settings: pass
            class Model(%s):
                def run(self): return self.put_there.scale, self.table["a"]["b"]["c"]["d"], self.forward()
                def ask(self): return self.put_there
            def run(): return MODEL.run()
            def ask(): return MODEL.ask()
        """
        library = module(
            "class Block:\n  unrelated = {'a': {'b': {'c': {}}}}\n  def forward(self): return 1", library=True
        )
        made = module("import %s as lib\n" % library.__name__ + __import__("textwrap").dedent(source % "lib.Block"))
        made.MODEL, library.Block.put_there = made.Model(), made.Settings()
        made.Settings.scale, library.Block.table = 1, {"a": {"b": {"c": {"d": 1}}}}
        table = library.Block.table["a"]["b"]["c"]
        for change, back in (
            (lambda: setattr(library.Block.put_there, "scale", 2), lambda: delattr(library.Block.put_there, "scale")),
            (lambda: table.update(d=2), lambda: table.update(d=1)),
        ):
            self.check(take(made.run), change, True, back)
        self.check(take(made.run), lambda: library.Block.unrelated["a"]["b"]["c"].update(d=1), False)
        library.Block.put_there = iter([1])
        with self.assertRaisesRegex(Refused, "put_there"):
            take(made.ask)

    def test_things_in_builtins(self):
        builtins.put_there = {"scale": [1]}
        self.addCleanup(delattr, builtins, "put_there")
        self.check_source("def run(): return put_there['scale'][0]", "put_there['scale'][0] = 2", back="put_there['scale'][0] = 1")


class ProcessStateTest(Base):
    def test_limits(self):
        """Calls fail by them, and nothing names them."""
        limit = sys.getrecursionlimit()
        self.check(take(lambda: 1), lambda: sys.setrecursionlimit(limit), True)
        if hasattr(sys, "set_int_max_str_digits"):
            self.check(take(lambda: 1), lambda: sys.set_int_max_str_digits(sys.get_int_max_str_digits()), True)

    def test_environment(self):
        os.environ["GRAPE_TEST_Y"] = "1"
        guard = take(lambda: os.environ.get("GRAPE_TEST_Y"))
        set_to = functools.partial(os.environ.__setitem__, "GRAPE_TEST_Y")
        self.check(guard, lambda: set_to("2"), True, lambda: set_to("1"))
        self.check(guard, lambda: os.environ.pop("GRAPE_TEST_Y"), True)
        self.check(take(lambda: 1), lambda: set_to("3"), False)

    def test_logger_levels(self):
        parent, child = logging.getLogger("grape_level"), logging.getLogger("grape_level.child")
        child.addHandler(logging.NullHandler())
        guard = take(module("import logging\nLOG = logging.getLogger('grape_level.child')\ndef run(): LOG.debug('x')").run)
        self.check(guard, lambda: parent.setLevel(logging.DEBUG), True, lambda: parent.setLevel(logging.NOTSET))
        self.check(guard, lambda: child.setLevel(logging.DEBUG), True, lambda: child.setLevel(logging.NOTSET))
        self.check(guard, lambda: logging.disable(logging.ERROR), True, lambda: logging.disable(logging.NOTSET))
        self.check(guard, lambda: logging.getLogger("unrelated").setLevel(logging.DEBUG), False)

    def test_logger_of_an_object(self):
        child = logging.getLogger("grape_level.held")
        child.addHandler(logging.NullHandler())
        source = """
            import logging
            class Model:
                def __init__(self): self.log = logging.getLogger('grape_level.held')
                def __call__(self): self.log.debug('x')
            MODEL = Model()
            def run(): MODEL()
        """
        guard = take(module(source).run)
        self.check(guard, lambda: child.setLevel(logging.DEBUG), True, lambda: child.setLevel(logging.NOTSET))
        parent = logging.getLogger("grape_level")
        self.check(guard, lambda: parent.setLevel(logging.DEBUG), True, lambda: parent.setLevel(logging.NOTSET))

    def test_loggers_that_are_read(self):
        """One that an object holds, and one of a class of the user's: what is set on them."""
        source = """
            import logging
            class Own(logging.Logger):
                scale = 1
                def factor(self): return self.scale
            LOG = Own("grape_read.own")
            class Model:
                def __init__(self): self.log = logging.getLogger('grape_read.held')
                def __call__(self): return self.log.level, self.log.handlers, getattr(self.log, "extra", None)
            MODEL = Model()
            def run(): return LOG.factor(), MODEL()
        """
        made = module(source)
        held, handler = made.MODEL.log, logging.NullHandler()
        for change, back in (
            (lambda: setattr(made.LOG, "scale", 2), lambda: delattr(made.LOG, "scale")),
            (lambda: held.setLevel(logging.DEBUG), lambda: held.setLevel(logging.NOTSET)),
            (lambda: held.addHandler(handler), lambda: held.removeHandler(handler)),
            (lambda: setattr(held, "extra", 1), lambda: delattr(held, "extra")),
        ):
            self.check(take(made.run), change, True, back)
        guard = take(made.run)
        self.check(guard, lambda: held.isEnabledFor(logging.ERROR), False)  # what it answered is kept
        self.check(guard, lambda: logging.getLogger("grape_read.more"), False)

    def test_logger_adapter(self):
        source = """
            import logging
            LOG = logging.LoggerAdapter(logging.getLogger('grape_level.adapted'), {'scale': 1, 'deep': [1]})
            def run(): LOG.debug('x'); return LOG.extra['scale']
        """
        made = module(source)
        log, extra = made.LOG.logger, made.LOG.extra
        log.addHandler(logging.NullHandler())
        for change, back in (
            (lambda: extra.update(scale=2), lambda: extra.update(scale=1)),
            (lambda: extra["deep"].append(1), lambda: extra["deep"].pop()),
            (lambda: log.setLevel(logging.DEBUG), lambda: log.setLevel(logging.NOTSET)),
        ):
            self.check(take(made.run), change, True, back)

    def test_warning_filters(self):
        guard = take(lambda: 1)
        with warnings.catch_warnings():
            self.assertTrue(guard.holds())
            warnings.simplefilter("error", ImportWarning)
            self.assertFalse(guard.holds())
        self.assertTrue(guard.holds())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ImportWarning)
            inner = take(lambda: 1)
        self.assertFalse(inner.holds())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ImportWarning)
            self.assertTrue(inner.holds())


class ContextVariablesTest(Base):
    SOURCE = """
        import contextvars
        class Var:  # libraries wrap theirs
            def __init__(self, *args, **keywords): self.var = contextvars.ContextVar(*args, **keywords)
            def get(self, *args): return self.var.get(*args)
        VAR, NONE = Var('collector', default=None), Var('without')
        def run(): return VAR.get()
        def without(): return NONE.get(7)
        def collect():
            if VAR.get() is not None: VAR.get().append(1)
        def inside():
            token = VAR.var.set([])
            collect()
            kept = VAR.get()
            VAR.var.reset(token)
            return kept
        def leaves(): VAR.var.set((VAR.get() or 0) + 1)
    """

    def test_values(self):
        made = module(self.SOURCE, library=True)
        guard, var = take(made.run), made.VAR.var
        tokens = []
        for value in (1, [], {"hidden_states": []}):
            self.check(
                guard, lambda: tokens.append(var.set(value)), True, lambda: var.reset(tokens.pop())  # noqa: B023
            )
        without = take(made.without)
        self.check(without, lambda: tokens.append(made.NONE.var.set(7)), True, lambda: made.NONE.var.reset(tokens.pop()))
        self.check(take(lambda: 1), lambda: var.set(5), False)

    def test_of_the_users(self):
        source = """
            import contextvars
            VAR = contextvars.ContextVar('mode', default=None)
            def run(): return VAR.get()
        """
        made = module(source)
        guard, tokens = take(made.run), []
        self.check(guard, lambda: tokens.append(made.VAR.set([1])), True, lambda: made.VAR.reset(tokens.pop()))
        old, other = made.VAR, contextvars.ContextVar("mode", default=None)
        self.check(guard, lambda: setattr(made, "VAR", other), True, lambda: setattr(made, "VAR", old))

    def test_content(self):
        made = module(self.SOURCE, library=True)
        kept = []
        made.VAR.var.set(kept)
        guard = take(made.run)
        self.check(guard, lambda: kept.append(1), True, kept.pop)
        self.check(guard, lambda: made.VAR.var.set([]), True, lambda: made.VAR.var.set(kept))  # an equal one
        self.check(guard, lambda: made.VAR.var.set([1]), True, lambda: made.VAR.var.set(kept))

    def test_the_call_changes_it(self):
        made = module(self.SOURCE, library=True)
        for function, holds in ((made.inside, True), (made.collect, True), (made.leaves, False)):
            guard = take(function, calls=2)
            take(function)
            self.assertEqual(guard.holds(), holds, guard.change)
        made.VAR.var.set([])
        guard = take(made.collect)
        made.collect()
        self.assertFalse(guard.holds())
        self.assertIn("the context variable collector", guard.change)

    def test_refused(self):
        made = module(self.SOURCE, library=True)
        made.VAR.var.set(threading.Lock())
        with self.assertRaisesRegex(Refused, "the context variable collector: a _thread.lock"):
            take(made.run)
        made.VAR.var.set(None)
        observation = Observation()
        for function in (contextvars.copy_context, functools.partial(contextvars.copy_context().run, made.run)):
            observation.run(lambda: function())  # noqa: B023
            self.assertRegex(observation.reason, r"calls (contextvars\.copy_context|Context\.run)\(\)")

    def test_threads(self):
        """Each thread has values of its own."""
        made = module(self.SOURCE, library=True)
        guard, held = take(made.run), []

        def other():
            held.append(guard.holds())
            made.VAR.var.set(1)
            held.append(guard.holds())

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        self.assertEqual(held, [True, False])
        self.assertTrue(guard.holds(), guard.change)


class GuardTest(Base):
    def test_many_guards(self):
        made = module("X, Y = 1, [1]\ndef run(): return X, Y")
        guards = [take(made.run) for _ in range(300)]
        self.assertTrue(all(guard.holds() for guard in guards))
        made.X = 2
        self.assertFalse(any(guard.holds() for guard in guards))
        other = take(made.run)
        self.assertTrue(other.holds())
        made.X = 1
        self.assertTrue(all(guard.holds() for guard in guards))
        self.assertFalse(other.holds())
        del guards[1:]
        made.Y.append(1)
        self.assertFalse(guards[0].holds())

    def test_refused_observation_can_be_guarded(self):
        made = module("X = 1\ndef run(): print(X, end='')")
        observation = Observation()
        stdout, sys.stdout = sys.stdout, io.StringIO()
        observation.run(made.run)
        sys.stdout = stdout
        self.assertIn("print", observation.reason)
        self.check(Globals(observation), lambda: setattr(made, "X", 2), True)

    def test_instructions_unknown(self):
        """Without the module that tells what instructions mean, nothing is guarded, rather than too little."""
        source = "import sys, executed\nassert 'opcode' not in sys.modules\nobservation = executed.Observation()\n"
        source += "observation.run(int)\ntry: executed.Globals(observation)\nexcept executed.Refused as why: print(why)"
        done = subprocess.run(
            [sys.executable, "-S", "-c", source],
            stdout=subprocess.PIPE,
            universal_newlines=True,
        )
        self.assertIn("instructions are not known", done.stdout)

    def test_module_reloaded(self):
        path = os.path.join(FOLDER, "reloaded_here.py")
        with open(path, "w") as file:
            file.write("X = 1\ndef run(): return X\n")
        sys.path.insert(0, FOLDER)
        import reloaded_here

        guard = take(reloaded_here.run)
        with open(path, "w") as file:
            file.write("X = 22\ndef run(): return X\n")
        importlib.reload(reloaded_here)
        sys.path.remove(FOLDER)
        self.assertFalse(guard.holds())

    def test_fast(self):
        source = "\n".join("V%d = %d" % (i, i) for i in range(50))
        source += "\n" + "\n".join("def f%d(): return V%d" % (i, i) for i in range(50))
        source += "\ndef run(): " + "; ".join("f%d()" % i for i in range(50))
        made = module(source)
        guard = take(made.run)
        made.unrelated = 1
        best = min(guard.microseconds(200) for _ in range(5))
        self.assertGreater(best, 0)
        print(f"holds(): {best:.2f} us")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
