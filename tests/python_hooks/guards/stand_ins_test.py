"""What is bound to something counts with it: C's functions in classes, and what stands in the place of a library's functions."""
import functools
import itertools
import sys
import unittest

from executed import Refused
from made_modules import Base, module, take

USERS = """
    import functools, itertools
    class Patch:
        scale = 2.0
        def __init__(self): self.deep = {"a": {"b": {"c": [1]}}}
        def act(self, x): return x
        def __call__(self, x): return x
    class Getter:
        def __init__(self): self.table = {"a": 1}
        def __call__(self, x): return x
    patch, table, values = Patch(), {"a": {"b": {"c": [1]}}}, [1, 2, 3]
"""
LIBRARY = """
    def activation(x): return x
    def _own(x): return x
    def layer(x): return activation(x), _own(x)
    class Block:
        def forward(self, x): return x
    BLOCK = Block()
"""


class BoundInClassesTest(Base):
    def test_in_a_class(self):
        source = """
            TABLE, VALUES = {"a": [1]}, [1, 2, 3]
            class Looking:
                lookup = TABLE.get
                __getitem__ = TABLE.__getitem__
                text = "abc".upper
                length = len
                def run(self): return self.lookup("a")
            LOOKING = Looking()
            def run(): return LOOKING.run()
        """
        for change, back in (
            ("m.TABLE['a'].append(2)", "m.TABLE['a'].pop()"),
            ("m.TABLE['b'] = 1", "del m.TABLE['b']"),
            ("m.Looking.lookup = m.VALUES.append", "m.Looking.lookup = m.TABLE.get"),
        ):
            self.check_source(source, change, back=back)
        self.check_source(source, "m.VALUES.append(1)", seen=False)
        self.check_source(source, "m.Looking.lookup = m.TABLE.get", seen=False)

    def test_under_a_special_name(self):
        source = """
            TABLE = {"a": [1]}
            class Looking:
                __getitem__ = TABLE.__getitem__
            LOOKING = Looking()
            def run(): return LOOKING["a"]
        """
        self.check_source(source, "m.TABLE['a'].append(2)", back="m.TABLE['a'].pop()")

    def test_elsewhere(self):
        for name, use in (
            ("lookup = TABLE.get", "lookup"),
            ("import types; LOOKING = types.SimpleNamespace(lookup=TABLE.get)", "LOOKING.lookup"),
            ("def make(lookup=TABLE.get): return lookup", "make()"),
        ):
            source = "TABLE = {'a': [1]}\n%s\ndef run(): return %s('a')" % (name, use)
            self.check_source(source, "m.TABLE['a'].append(2)", back="m.TABLE['a'].pop()")

    def test_taken_away(self):
        made = module("""
            VALUES = [1, 2, 3, 4]
            class Taking:
                take = VALUES.pop
                def run(self): return self.take()
            TAKING = Taking()
            def run(): return TAKING.run()
        """)
        guard = take(made.run)
        self.assertTrue(guard.holds(), guard.change)
        made.run()
        self.assertFalse(guard.holds())


class StandInsTest(Base):
    """Things of the user's in the place of a library's function, method, or data."""

    def setUp(self):
        self.users, self.library = module(USERS), module(LIBRARY, library=True)
        self.patch = self.users.patch
        self.callers = module("""
            import %s as lib
            def named(): return lib.activation(1)
            def indirect(): return lib.layer(1)
            def method(): return lib.BLOCK.forward(1)
        """ % self.library.__name__)

    def check_patched(self, holder, name, new, run, *changes):
        old = vars(holder)[name]
        setattr(holder, name, new)
        try:
            for change, back in changes:
                self.check(take(run), change, True, back)
        finally:
            setattr(holder, name, old)

    def changes_of_patch(self):
        deep = self.patch.deep["a"]["b"]["c"]
        return (
            (lambda: setattr(self.patch, "scale", 3.0), lambda: delattr(self.patch, "scale")),
            (lambda: deep.append(2), deep.pop),
        )

    def test_bound_methods(self):
        changes = self.changes_of_patch()
        for run in (self.callers.named, self.callers.indirect):
            self.check_patched(self.library, "activation", self.patch.act, run, *changes)
            self.check_patched(self.library, "activation", self.patch, run, *changes)
        self.check_patched(self.library, "_own", self.patch.act, self.callers.indirect, *changes)

    def test_methods_of_a_class(self):
        for new in (staticmethod(self.patch.act), self.patch, staticmethod(functools.partial(self.patch.act))):
            self.check_patched(self.library.Block, "forward", new, self.callers.method, *self.changes_of_patch())

    def test_partials(self):
        leaky = functools.partial(lambda x, scale=1, **_: scale, scale=2)
        change = (lambda: leaky.keywords.update(scale=3), lambda: leaky.keywords.update(scale=2))
        added = (lambda: setattr(leaky, "more", 1), lambda: delattr(leaky, "more"))
        for run in (self.callers.named, self.callers.indirect):
            self.check_patched(self.library, "activation", leaky, run, change, added)
            self.check_patched(self.library, "activation", functools.partial(leaky), run, change)
            bound = functools.partial(lambda act, x: act(x), self.patch.act)
            self.check_patched(self.library, "activation", bound, run, *self.changes_of_patch())

    def test_functions_of_c(self):
        deep = self.users.table["a"]["b"]["c"]
        change = (lambda: deep.append(2), deep.pop)
        for new in (self.users.table.get, functools.partial(self.users.table.get, "a")):
            for run in (self.callers.named, self.callers.indirect):
                self.check_patched(self.library, "activation", new, run, change)

    def test_iterators(self):
        take_one = itertools.count().__next__
        self.library.activation = functools.partial(lambda take, x: take(), take_one)
        made = module("import %s as lib\ndef run(): return lib.take_one()" % self.library.__name__)
        self.library.take_one = take_one
        for run in (self.callers.named, self.callers.indirect, made.run):
            with self.assertRaisesRegex(Refused, "a method-wrapper"):
                take(run)

    def test_registries(self):
        library = module("""
            TABLE = {"act": len}
            def run(): return TABLE["act"]([1])
        """, library=True)
        library.TABLE["act"] = self.patch.act
        for change, back in self.changes_of_patch():
            self.check(take(library.run), change, True, back)

    def test_of_the_library(self):
        """Its own objects are its own affair."""
        library = module("""
            import functools, itertools, threading
            class Lock:
                def __init__(self): self.lock, self.count = threading.Lock(), 0
                def act(self, x): return x
            lock = Lock()
            activation, other = lock.act, functools.partial(lock.act)
            _next = itertools.count().__next__
            def run(): return activation(1), other(1), _next()
        """, library=True)
        guard = take(library.run)
        self.check(guard, lambda: setattr(library.lock, "count", 1), False)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
