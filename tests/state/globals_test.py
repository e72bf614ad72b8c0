"""Whatever the executed code names is guarded: each change of it is seen, and what it does not name may change."""
import asyncio
import builtins
import functools
import gc
import importlib
import io
import logging
import os
import sys
import tempfile
import textwrap
import types
import unittest
import warnings
import weakref

from executed import Globals, Observation, Refused

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


class UsersGlobalsTest(Base):
    def test_values(self):
        for values in (("1", "2"), ("1.5", "2.5"), ("'a'", "'b'"), ("(1, 2)", "(1, 3)"), ("None", "0"), ("True", "1")):
            source = "X = %s\ndef run(): return X" % values[0]
            guard = self.check_source(source, "m.X = %s" % values[1], back="m.X = %s" % values[0])
            self.assertIn(".X", guard.change)

    def test_equal_values(self):
        self.check_source("X = int('123456')\ndef run(): return X", "m.X = int('123456')", seen=False)
        self.check_source("X = [1, {'a': (2, 'b')}]\ndef run(): return X", "m.X = [1, {'a': (2, 'b')}]", seen=False)

    def test_containers_are_mutated(self):
        for change in ("m.X.append(1)", "m.X[0]['a'][1] = 9", "m.X[0]['b'] = 1", "m.X.clear()", "m.X[1].add(7)"):
            self.check_source("X = [{'a': [1, 2]}, {3}]\ndef run(): return X", change)

    def test_mutated_and_back(self):
        self.check_source("X = [1]\ndef run(): return X", "m.X.append(2)", back="m.X.pop()")

    def test_instances(self):
        source = """
            class Config:
                size = 3
                names = ["a"]
                def __init__(self): self.depth = 1
            CONFIG = Config()
            def run(): return CONFIG.depth
        """
        self.check_source(source, "m.CONFIG.depth = 2", back="m.CONFIG.depth = 1")
        self.check_source(source, "m.CONFIG.other = 2", back="del m.CONFIG.other")
        self.check_source(source, "m.Config.size = 4", back="m.Config.size = 3")
        self.check_source(source, "m.Config.names.append('b')", back="m.Config.names.pop()")
        self.check_source(source, "m.CONFIG = m.Config()", seen=False)

    def test_class_as_a_namespace(self):
        source = """
            class Base: rate = 1
            class Config(Base): names = ["a"]
            def run(): return Config.rate
        """
        for change in ("m.Config.rate = 2", "m.Base.rate = 2", "m.Config.names.append(1)", "m.Base.more = 1"):
            self.check_source(source, change)
        self.check_source(source + "\n            class Other: pass", "m.Other.more = 1", seen=False)

    def test_unrelated(self):
        source = "X = 1\nY = 2\nZ = [1]\ndef run(): return X\ndef other(): return Y"
        for change in ("m.Y = 3", "m.NEW = 1", "del m.Y", "m.Z.append(2)", "m.other = None", "m.run = None"):
            self.check_source(source, change, seen=False)

    def test_deleted_and_defined(self):
        self.check_source("X = 1\ndef run(): return X", "del m.X", back="m.X = 1")
        self.check_source("def run():\n  try: return Y\n  except NameError: pass", "m.Y = 1", back="del m.Y")

    def test_branch_not_taken_counts(self):
        self.check_source("DEBUG = False\nX = 1\ndef run(): return X if DEBUG else 0", "m.X = 2")

    def test_functions(self):
        source = """
            def helper(a, b=1, *, c=2): return b + c
            def other(a, b=1, *, c=2): return 0
            def run(): return helper(0)
        """
        for change in (
            "m.helper = m.other",
            "m.helper.__code__ = m.other.__code__",
            "m.helper.__defaults__ = (5,)",
            "m.helper.__kwdefaults__ = {'c': 5}",
            "m.helper.__kwdefaults__['c'] = 5",
        ):
            self.check_source(source, change)
        self.check_source(source, "m.other.__defaults__ = (5,)", seen=False)

    def test_mutable_default(self):
        self.check_source("def helper(cache={}): return len(cache)\ndef run(): return helper()", "m.helper()['x'] = 1"
                          .replace("m.helper()", "m.helper.__defaults__[0]"))

    def test_code_of_the_function_itself(self):
        source = "def run(a=1): return a\ndef other(a=1): return 2"
        self.check_source(source, "m.run.__code__ = m.other.__code__")
        self.check_source(source, "m.run.__defaults__ = (2,)")

    def test_closures(self):
        source = """
            def make():
                value, listed, unused = 1, [1], 1
                def run(): return value, listed
                def set_value(to):
                    nonlocal value
                    value = to
                def add(to): listed.append(to)
                return run, set_value, add
            run, set_value, add = make()
            def outer(): return run()
        """
        for entry in ("run", "outer"):
            self.check_source(source, "m.set_value(2)", back="m.set_value(1)", run=entry)
            self.check_source(source, "m.add(2)", run=entry)

    def test_decorated(self):
        source = """
            import functools
            FACTOR = [1]
            def scaled(function):
                scale = [2]
                @functools.wraps(function)
                def wrapper(): return function() * scale[0]
                wrapper.scale = scale
                return wrapper
            @scaled
            def run(): return FACTOR[0]
        """
        self.check_source(source, "m.FACTOR[0] = 2")
        self.check_source(source, "m.run.scale[0] = 3")

    def test_functions_that_no_name_leads_to(self):
        source = """
            def make():
                value = [1]
                def hidden(): return value
                return hidden, value
            def run(functions): return functions[0]()
        """
        made = module(source)
        hidden, value = made.make()
        if sys.version_info < (3, 11):  # frames do not name their functions
            with self.assertRaisesRegex(Refused, "a function with a closure ran .*hidden"):
                take(made.run, [hidden])
            return
        guard = take(made.run, [hidden])
        self.check(guard, lambda: value.append(1), True, value.pop)
        # It dies: who led to it is another's matter.
        del hidden
        gc.collect()
        self.assertTrue(guard.holds())

    def test_functions_made_in_the_call(self):
        source = """
            def run():
                value = object()
                def inner(): return value
                def recursive(n): return recursive(n - 1) if n else value
                class Local:
                    def method(self): return inner()
                return Local().method() is recursive(2), [inner() for _ in range(2)]
        """
        made = module(source)
        guard = take(made.run)
        gc.collect()
        self.assertTrue(guard.holds(), guard.change)
        made.run()
        self.assertTrue(guard.holds(), guard.change)

    def test_opaque(self):
        made = module("import threading\nLOCK = threading.Lock()\ndef run():\n  with LOCK: return 1")
        with self.assertRaisesRegex(Refused, r"made_\d+\.LOCK: a _thread\.lock"):
            take(made.run)

    def test_what_stands_for_itself(self):
        source = """
            import functools, logging, re
            LOGGER = logging.getLogger("grape.stands")
            PATTERN = re.compile("a+")
            @functools.lru_cache(None)
            def cached(value): return value
            def run():
                LOGGER.debug("x")
                return PATTERN.match("aa"), cached(1)
        """
        self.check_source(source, "m.cached(2)", seen=False, calls=2)
        self.check_source(source, "m.PATTERN = __import__('re').compile('b+')", calls=2)
        self.check_source(source, "m.LOGGER = __import__('logging').getLogger('grape.other')", calls=2)

    def test_globals_that_the_code_sets(self):
        source = """
            STEPS, FLAG, KEPT = 0, False, []
            class Thing: pass
            def counts():
                global STEPS
                STEPS += 1
            def flags():
                global FLAG
                FLAG = True
            def keeps():
                global KEPT
                KEPT = [1]
            def makes():
                global THING
                THING = None
                THING = Thing()
        """
        made = module(source)
        guard = take(made.counts)
        self.assertTrue(guard.holds())
        made.counts()
        self.assertFalse(guard.holds())
        made.flags()
        guard = take(made.flags)
        made.flags()
        self.assertTrue(guard.holds())
        with self.assertRaisesRegex(Refused, r"sets the global made_\d+\.KEPT"):
            take(made.keeps)
        made.makes()
        guard = take(made.makes)
        self.assertTrue(guard.holds())
        for _ in range(5):  # an equal one, maybe at the same address
            made.makes()
            self.assertFalse(guard.holds())

    def test_state_that_the_call_changes(self):
        made = module("class State: pass\nSTATE = State()\nSTATE.n = 0\ndef run(): STATE.n += 1")
        guard = take(made.run)
        self.assertTrue(guard.holds())
        made.run()
        self.assertFalse(guard.holds())

    def test_loop_variables(self):
        """Unrelated names of the same module are set all the time."""
        made = module("X, CONFIG = 1, {'a': [1]}\ndef run(): return X, CONFIG")
        guard = take(made.run)
        for i in range(100):
            made.step = [i]
            self.assertTrue(guard.holds())
        made.CONFIG["a"].append(1)
        made.step = 0
        self.assertFalse(guard.holds())

    def test_nothing_is_kept_alive(self):
        made = module("class Thing: pass\nTHING = Thing()\nTHING.big = Thing()\ndef run(): return THING.big")
        guard = take(made.run)
        thing, big = weakref.ref(made.THING), weakref.ref(made.THING.big)
        self.assertTrue(guard.holds())
        made.THING = None
        self.assertIsNone(thing())
        self.assertIsNone(big())
        self.assertFalse(guard.holds())

    def test_address_used_again(self):
        made = module("class Thing:\n  def __init__(self, n): self.n = n\nTHING = Thing(0)\ndef run(): return THING.n")
        again = 0
        for _ in range(50):
            made.THING = made.Thing(0)
            guard, address = take(made.run), id(made.THING)
            made.THING = None
            others = [made.Thing(1) for _ in range(50)]
            made.THING = next((other for other in others if id(other) == address), others[0])
            again += id(made.THING) == address
            self.assertFalse(guard.holds())
        self.assertGreater(again, 0, "no address was used again")
        made = module("X = [0]\ndef run(): return X")
        for _ in range(50):
            made.X = [0]
            guard = take(made.run)
            made.X = None
            made.X = [1]
            self.assertFalse(guard.holds())
            made.X = {0}
            self.assertFalse(guard.holds())


class FramesTest(Base):
    """Names of every kind of frame are found, also where the interpreter has specialised its calls."""

    SOURCE = """
        X = 1
        class Thing:
            def __init__(self): self.made = %(init)s
            def __getitem__(self, key): return %(item)s
            def __call__(self): return %(call)s
            def __enter__(self): return %(enter)s
            def __exit__(self, *_): pass
            def __iter__(self):
                yield %(iter)s
            def __getattr__(self, name): return %(getattr)s
            def __lt__(self, other): return %(lt)s
            @property
            def prop(self): return %(prop)s
            @classmethod
            def build(cls): return %(klass)s
            @staticmethod
            def static(): return %(static)s
        def generate():
            for i in range(2): yield %(gen)s
        def delegate():
            yield from generate()
        async def wait(): return %(coroutine)s
        async def outer(): return await wait()
        def helper(*a, **k): return %(helper)s
        def many(): return (lambda: %(lambda_)s)(), [%(listcomp)s for _ in (1,)], list(%(genexpr)s for _ in (1,))
        def drive(coroutine):
            try: coroutine.send(None)
            except StopIteration as stop: return stop.value
        def run():
            thing = Thing()
            thing[0], thing(), thing.nothing, thing < thing, thing.prop, Thing.build(), Thing.static()
            with thing: pass
            for _ in thing: pass
            for _ in delegate(): pass
            drive(outer()), helper(1), helper(*(1,), **{"k": 2}), many(), max((1, 2), key=helper)
            class Local: value = %(body)s
            return eval("%(eval_)s")
    """
    PLACES = "init item call enter iter getattr lt prop klass static gen coroutine helper lambda_ listcomp genexpr body"

    def test_names_in_frames(self):
        for place in (self.PLACES + " eval_").split():
            for warm in (0, 300):
                with self.subTest(place, warm=warm):
                    names = dict.fromkeys((self.PLACES + " eval_").split(), "0")
                    names[place] = "X"
                    made = module(self.SOURCE % names)
                    for _ in range(warm):
                        made.run()
                    self.check(take(made.run), lambda: setattr(made, "X", 2), True, lambda: setattr(made, "X", 1))

    def test_generator_begun_before(self):
        made = module("X = 1\ndef generate():\n  while True: yield X\ndef run(generator): return next(generator)")
        generator = made.generate()
        next(generator)
        self.check(take(made.run, generator), lambda: setattr(made, "X", 2), True)

    def test_coroutine_in_a_loop(self):
        made = module("X = 1\nasync def wait(): return X")
        observation = Observation()

        async def main():
            self.assertTrue(observation.begin())
            await made.wait()
            end()

        end = observation.end_without_python()
        asyncio.run(main())
        guard = Globals(observation)
        self.check(guard, lambda: setattr(made, "X", 2), True)

    def test_many_names(self):
        """Beyond 256 names the instructions have prefixes."""
        names = ["N%d" % i for i in range(700)]
        source = "\n".join("%s = 0" % name for name in names) + "\ndef run(): return (%s)" % ", ".join(names)
        made = module(source)
        guard = take(made.run)
        for name in (names[0], names[127], names[128], names[255], names[256], names[600], names[699]):
            self.check(guard, lambda name=name: setattr(made, name, 1), True, lambda name=name: setattr(made, name, 0))
        attributes = "\n".join("m%d = 0" % i for i in range(300))
        library = module(attributes, library=True)
        made = module("import %s as lib\ndef run(): return [%s]" % (
            library.__name__, ", ".join("lib.m%d" % i for i in range(300))))
        guard = take(made.run)
        for i in (0, 130, 299):
            self.check(guard, lambda i=i: setattr(library, "m%d" % i, 1), True, lambda i=i: setattr(library, "m%d" % i, 0))


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
        self.check(guard, lambda: listed.append(2), False)

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
        package = "grape_package_%d" % COUNT
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


class ProcessStateTest(Base):
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
        self.assertLess(best, 40, "microseconds")  # a few; machines that run tests are busy


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
