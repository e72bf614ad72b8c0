"""What the user's code names, in frames of every kind: each change of it is seen, and what it does not name may change."""
import asyncio
import gc
import sys
import unittest
import weakref

from executed import Globals, Observation, Refused
from made_modules import Base, module, take


class UsersGlobalsTest(Base):
    def test_values(self):
        for values in (("1", "2"), ("1.5", "2.5"), ("'a'", "'b'"), ("(1, 2)", "(1, 3)"), ("None", "0"), ("True", "1")):
            source = "X = %s\ndef run(): return X" % values[0]
            guard = self.check_source(source, "m.X = %s" % values[1], back="m.X = %s" % values[0])
            self.assertIn(".X", guard.change)

    def test_equal_values(self):
        self.check_source("X = int('123456')\ndef run(): return X", "m.X = int('123456')", seen=False)
        self.check_source("X = (1, 'a' * int('5'))\ndef run(): return X", "m.X = (1, 'a' * int('5'))", seen=False)

    def test_equal_objects(self):
        """Code may ask for the very object that it knows: an equal one is another, and the same one again is it."""
        for value in ("[1, {'a': (2, 'b')}]", "{'a': [1]}", "Thing()"):
            source = "class Thing: depth = 1\nX = %s\nKEPT = X\ndef run(): return X" % value
            guard = self.check_source(source, "m.X = %s" % value.replace("Thing", "m.Thing"), back="m.X = m.KEPT")
            self.assertIn("an object was replaced by an equal one", guard.change)

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
        self.check_source(source, "m.CONFIG = m.Config()")

    def test_class_as_a_namespace(self):
        source = """
            class Base: rate = 1
            class Config(Base): names = ["a"]
            def run(): return Config.rate
        """
        for change in ("m.Config.rate = 2", "m.Base.rate = 2", "m.Config.names.append(1)", "m.Base.more = 1"):
            self.check_source(source, change)
        self.check_source(source + "\n            class Other: pass", "m.Other.more = 1", seen=False)

    def test_classes_made_by_functions(self):
        """They say that they are from the module whose function made them."""
        source = """
            import abc, collections, types
            class Base: pass
            def method(self): return self.config
            def names(): return {"config": {"a": {"b": {"c": [1]}}}, "scale": types.SimpleNamespace(x=1)}
            %s
            OBJECT = Made()
            def run(): return OBJECT.config, OBJECT.scale.x
        """
        for maker in (
            'Made = types.new_class("New", (Base,), {}, lambda space: space.update(names()))',
            'Made = types.new_class("New", (Base,), {}, lambda space: space.update(names(), method=method))',
            'Made = types.new_class("FunctionType", (Base,), {}, lambda space: space.update(names()))',
            'Made = abc.ABCMeta("Abstract", (Base,), names())',
            'Made = type("OrderedDict", (Base,), {"__module__": "collections", "method": method, **names()})',
            'Made = type("Inner", (Base,), {"__module__": "json", "method": method, **names()})',
        ):
            deep = "m.Made.config['a']['b']['c']"
            self.check_source(source % maker, deep + ".append(2)", back=deep + ".pop()")
            self.check_source(source % maker, "m.Made.scale.x = 2", back="m.Made.scale.x = 1")
        for name in ("collections.UserDict", "enum.IntFlag", "types.SimpleNamespace", "re.RegexFlag"):
            source = "import collections, enum, types, re\nOBJECT = %s\ndef run(): return OBJECT" % name
            self.check_source(source, "m.unrelated = 1", seen=False)

    def test_names_with_underscores_of_a_class(self):
        source = """
            class Base: __settings__ = {"scale": [1]}
            class Model(Base):
                __config__ = type("Config", (), {"add": 1})
                def __call__(self): return self.__settings__["scale"][0] + self.__config__.add
            MODEL = Model()
            def run(): return MODEL()
        """
        for change in ("m.Base.__settings__['scale'][0] = 2", "m.Base.__settings__ = {}", "m.Model.__config__.add = 2"):
            self.check_source(source, change)
        self.check_source(source, "m.Base.__other__ = [1]", seen=True)

    def test_names_with_underscores_of_other_classes(self):
        """None of whose methods ran, and that no name leads to."""
        source = """
            class Base: __settings__ = {"scale": [1]}
            class Part(Base): pass
            class Slim:
                __slots__, __config__ = ["value"], type("Config", (), {"add": [1]})
            PARTS = [Part(), Slim()]
            def run(): return type(PARTS[0]).__settings__["scale"], PARTS[1].__config__.add
            def by_text(): return getattr(type(PARTS[0]), "__settings__")
            def by_method(): return PARTS[0].__class__.__name__, type(PARTS[0]).__mro__, PARTS[1].__slots__
        """
        for change in ("m.Base.__settings__['scale'][0] = 2", "m.Base.__settings__ = {}", "m.Part.__settings__ = {}"):
            self.check_source(source, change)
            self.check_source(source, change, run="by_text")
        self.check_source(source, "m.Slim.__config__.add[0] = 2", back="m.Slim.__config__.add[0] = 1")
        self.check_source(source, "m.Slim.__config__.add[0] = 2", seen=False, run="by_text")
        self.check_source(source, "m.Base.__settings__['scale'][0] = 2", seen=False, run="by_method")
        inside = "def run():\n  class Made: __settings__ = [1]\n  return Made().__settings__[0]"
        self.check_source(inside, "m.run()", seen=False, calls=2)

    def test_tables_of_an_enumeration(self):
        source = """
            import enum
            class Kind(enum.Enum):
                LOW, HIGH = "low", 2
            Kind.TABLE = [1]
            class Bits(enum.Flag):
                A, B, C = 1, 2, 4
            class Model:
                kind, bits = Kind, Bits
                def __call__(self): return self.kind("low"), len(self.kind), self.kind.TABLE, self.bits.A
            MODEL = Model()
            def run(): return MODEL()
        """
        for change in (
            "m.Kind._value2member_map_['low'] = m.Kind.HIGH",
            "m.Kind._member_names_.pop()",
            "m.Kind._member_map_['LOW'] = m.Kind.HIGH",
            "m.Kind.TABLE.append(2)",
        ):
            self.check_source(source, change)
        self.check_source(source, "m.Bits.A | m.Bits.C", seen=False)

    def test_unrelated(self):
        source = "X = 1\nY = 2\nZ = [1]\ndef run(): return X\ndef other(): return Y"
        for change in ("m.Y = 3", "m.NEW = 1", "del m.Y", "m.Z.append(2)", "m.other = None", "m.run = None"):
            self.check_source(source, change, seen=False)

    def test_annotations_of_the_module(self):
        """A module notes that it was asked for them."""
        for annotated in ("", "Y: int = 1\n"):
            made = module(annotated + "import sys\nME = sys.modules[__name__]\ndef run(): return vars(ME)")
            for name in ("__annotate__", "__annotations__"):
                self.check(take(made.run), lambda name=name: getattr(made, name, None), False)
            self.check(take(made.run), lambda: setattr(made, "NEW", 1), True)

    def test_annotations_that_are_read(self):
        for name in ("__annotations__", "__annotate__"):
            for annotated in ("def helper(a: int): pass", "class helper:\n  a: int"):
                made = module(annotated + "\ndef run():\n  try: return helper.%s\n  except AttributeError: pass" % name)
                with self.assertRaisesRegex(Refused, "reads %s, which cannot be guarded" % name):
                    take(made.run)

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
            with self.assertRaisesRegex(Refused, "^a function with a closure ran that no global leads to: hidden$"):
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
            def library(): return 1
            library.__wrapped__ = functools.wraps
            def run():
                LOGGER.debug("x")
                return PATTERN.match("aa"), library()
        """
        self.check_source(source, "m.library.cache_clear()", seen=False, calls=2)
        self.check_source(source, "m.PATTERN = __import__('re').compile('b+')", calls=2)
        self.check_source(source, "m.LOGGER = __import__('logging').getLogger('grape.other')", calls=2)

    def test_cached_results(self):
        source = """
            import functools
            VALUE = [1]
            SIZE = %s
            @functools.lru_cache(SIZE)
            def cached(value, *, key=1): return {"value": [value, VALUE[0]]}
            def run():
                return cached(1), cached(1, key=2)
            def renew():
                cached.cache_clear()
                return run()
            def other():
                cached.cache_clear()
                return cached(3), cached(1, key=2)
            KEPT = []
        """
        for size in ("None", "2", "100"):
            self.check_source(source % size, "m.KEPT += m.run(); m.cached.cache_clear()", calls=2)
            self.check_source(source % size, "m.KEPT += m.run(); m.renew()", calls=2)  # equal results, not the same
            self.check_source(source % size, "m.VALUE[0] = 5; m.renew()", calls=2)
            self.check_source(source % size, "m.other()", calls=2)
            self.check_source(source % size, "m.cached(1)['value'][1] = 7", back="m.cached(1)['value'][1] = 1", calls=2)
            self.check_source(source % size, "m.cached(2)", calls=2)
            self.check_source(source % size, "m.cached.__wrapped__.__kwdefaults__['key'] = 2", calls=2)

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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
