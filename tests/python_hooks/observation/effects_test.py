"""What code may reach for that no state shows is found, by whichever way it is called; what is harmless is not."""
import asyncio
import builtins
import collections
import codecs
import concurrent.futures
import contextlib
import copy
import cProfile
import csv
import ctypes
import dataclasses
import datetime
import decimal
import enum
import functools
import gc
import inspect
import io
import itertools
import json
import locale
import logging
import math
import mmap
import operator
import os
import pickle
import pwd
import queue
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import tracemalloc
import typing
import unittest
import uuid
import warnings
import weakref

from executed import Observation

NULL = open(os.devnull, "r+")
NULL_BYTES = open(os.devnull, "rb", buffering=0)
SOCKETS = socket.socketpair()
POOL = concurrent.futures.ThreadPoolExecutor(1)
POOL.submit(int).result()
QUEUE = queue.SimpleQueue()
EVENT = threading.Event()
LOCK = threading.Lock()
LOGGER = logging.getLogger("grape.test")
LOGGER.propagate = False
LOGGER.addHandler(logging.NullHandler())
AWAKE = logging.getLogger("grape.awake")
AWAKE.propagate = False
AWAKE.addHandler(logging.NullHandler())
AWAKE.setLevel(logging.DEBUG)
RECORD = logging.makeLogRecord({"levelno": logging.INFO})
PROFILE = cProfile.Profile()
WRITTEN = io.StringIO("text")
PICKLED = pickle.dumps(len)
DIRECTORY = os.path.dirname(os.path.abspath(__file__))
OTHER_RANDOM = random.Random(4)
LIMIT = sys.getrecursionlimit()
NUMBER = ctypes.c_float(1.0)
POINTER = ctypes.pointer(NUMBER)
TEXT = ctypes.create_string_buffer(b"x")
TEXT_ADDRESS = ctypes.addressof(TEXT)


class Pair(ctypes.Structure):
    _fields_ = [("first", ctypes.c_int), ("second", ctypes.c_int)]


PAIR = Pair()


class Sink:
    """A stream that is no stream of the interpreter's."""

    def write(self, text):
        pass

    def flush(self):
        pass


class Printer:
    def __getattr__(self, name):
        print(name, file=Sink())
        return name

    def __del__(self):
        time.time()


def printing_generator():
    yield 1
    print("", file=Sink())
    yield 2


def one_and_two():
    generator = printing_generator()
    return next(generator), next(generator)


async def sleeper():
    time.monotonic()


def run_coroutine():
    try:
        sleeper().send(None)
    except StopIteration:
        pass


def caught():
    try:
        print("", file=Sink())
        raise ValueError
    except ValueError:
        pass


def warn_always():
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        stream, sys.stderr = sys.stderr, Sink()
        try:
            warnings.warn("grape")
        finally:
            sys.stderr = stream


def start_thread():
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


def import_anew():
    sys.modules.pop("this_is_imported_anew", None)
    import this_is_imported_anew  # noqa: F401


def next_line():
    for _ in NULL:
        pass


def set_profile():
    sys.setprofile(lambda *_: None)
    sys.setprofile(None)


REFUSED = [
    # Output.
    ("print", lambda: print("", file=Sink()), "print"),
    ("print by map", lambda: list(map(functools.partial(print, file=Sink()), [1])), "print"),
    ("print by partial", functools.partial(print, "", file=Sink()), "print"),
    ("print by another name", lambda say=builtins.__dict__["print"]: say("", file=Sink()), "print"),
    ("print as a callback", lambda: sorted([1], key=lambda _: print("", file=Sink()) or 0), "print"),
    ("print in __getattr__", lambda: Printer().name, "print"),
    ("print in a generator", one_and_two, "print"),
    ("print before an exception that is caught", caught, "print"),
    ("write", lambda: NULL.write("x"), "write"),
    ("flush", lambda: NULL.flush(), "flush"),
    ("stdout", lambda: sys.stdout.write(""), "write"),
    ("StringIO kept outside", lambda stream=io.StringIO(): stream.write("x"), "write"),
    ("os.write", lambda: os.write(NULL.fileno(), b""), "os.write"),
    # Logging and warnings.
    ("logging", lambda: LOGGER.warning("x"), "Logger._log"),
    ("logging at a low level", lambda: AWAKE.debug("x"), "Logger._log"),
    ("a log record", lambda: AWAKE.handle(RECORD), "Logger.handle"),
    ("a warning that is shown", warn_always, "_showwarnmsg"),
    # Files.
    ("open", lambda: open(os.devnull).close(), "open"),
    ("FileIO", lambda: io.FileIO(os.devnull).close(), "FileIO"),
    ("os.open", lambda: os.close(os.open(os.devnull, os.O_RDONLY)), "os.open"),
    ("read", lambda: NULL.read(), "read"),
    ("read bytes", lambda: NULL_BYTES.read(1), "FileIO.read"),
    ("lines of a file", next_line, "TextIOWrapper.__next__"),
    ("exists", lambda: os.path.exists("/"), "os.stat"),
    ("listdir", lambda: os.listdir("/"), "os.listdir"),
    ("getcwd", lambda: os.getcwd(), "os.getcwd"),
    ("temporary file", lambda: tempfile.TemporaryFile().close(), "calls "),
    ("mmap", lambda area=mmap.mmap(-1, 4096): area.write(b"x"), "mmap.write"),
    # Clocks.
    ("time", lambda: time.time(), "time.time"),
    ("time by from-import", lambda now=time.perf_counter: now(), "time.perf_counter"),
    ("time by map", lambda: [f() for f in map(operator.itemgetter(0), [(time.monotonic_ns,)])], "time.monotonic_ns"),
    ("time in a finaliser", lambda: Printer() and None, "time.time"),
    ("time in a coroutine", run_coroutine, "time.monotonic"),
    ("sleep", lambda: time.sleep(0), "time.sleep"),
    ("now", lambda: datetime.datetime.now(), "datetime.now"),
    ("today", lambda: datetime.date.today(), "today"),
    # Environment: reading can be guarded, writing cannot.
    ("setting the environment", lambda: os.environ.__setitem__("GRAPE_TEST_X", "1"), "os.putenv"),
    ("removing from it", lambda: os.unsetenv("GRAPE_TEST_X"), "os.unsetenv"),
    # Randomness.
    ("random", lambda: random.random(), "Random.random"),
    ("randint", lambda: random.randint(0, 9), "Random."),
    ("shuffle", lambda: random.shuffle([1, 2, 3]), "Random."),
    ("another generator", lambda: OTHER_RANDOM.random(), "Random.random"),
    ("seed", lambda: random.seed(1), "Random.seed"),
    ("urandom", lambda: os.urandom(4), "os.urandom"),
    ("uuid4", lambda: uuid.uuid4(), "os.urandom"),
    ("SystemRandom", lambda: random.SystemRandom().random(), "SystemRandom.random"),
    # Threads, processes, sockets, signals.
    ("thread", start_thread, "Thread.start"),
    ("pool", lambda: POOL.submit(int).result(), "ThreadPoolExecutor.submit"),
    ("simple queue", lambda: QUEUE.put(1), "SimpleQueue.put"),
    ("event", lambda: EVENT.set(), "Event.set"),
    ("event asked", lambda: EVENT.is_set(), "Event.is_set"),
    ("process", lambda: subprocess.call([sys.executable, "-S", "-c", ""]), "os."),
    ("socket", lambda: socket.socket().close(), "socket.__init__"),
    ("send", lambda: SOCKETS[0].send(b"x"), "socket.send"),
    ("select", lambda: select.select([], [], [], 0), "select.select"),
    ("signal", lambda: signal.signal(signal.SIGUSR1, signal.SIG_DFL), "signal.signal"),
    ("alarm", lambda: signal.alarm(0), "signal.alarm"),
    ("event loop", lambda: asyncio.new_event_loop().close(), "socket.socketpair"),
    ("another event loop", lambda: select.epoll().poll(0), "epoll.poll"),
    # The interpreter.
    ("input", lambda: input(), "input"),
    ("import", import_anew, "imports this_is_imported_anew"),
    ("gc", lambda: gc.collect(), "gc.collect"),
    ("gc switched", lambda: (gc.disable(), gc.enable()), "gc.disable"),
    ("profile function", set_profile, "sys.setprofile"),
    ("cProfile", lambda: (PROFILE.enable(), PROFILE.disable()), "enable"),
    ("recursion limit", lambda: sys.setrecursionlimit(LIMIT), "sys.setrecursionlimit"),
    ("variables of a function", lambda: inspect.getclosurevars(one_and_two), "inspect.getclosurevars"),
    ("a caller", lambda: LOGGER.findCaller(), "findCaller"),
    ("handlers of a logger", lambda: LOGGER.hasHandlers(), "hasHandlers"),
    ("what was written", lambda: WRITTEN.getvalue(), "StringIO.getvalue"),
    ("functions by their names", lambda: pickle.loads(PICKLED), "pickle.loads"),
    ("functions by their names, in Python", lambda: pickle._loads(PICKLED), "pickle._loads"),
    ("globals by name", lambda: globals()["REFUSED"], "globals"),
    ("identity", lambda: id(REFUSED), "id()"),
    ("identity by hash", lambda: hash((1, ("a", Sink()))), "hash() of an object"),
    ("references", lambda: sys.getrefcount(REFUSED), "sys.getrefcount"),
    ("referrers", lambda: gc.get_referrers(REFUSED), "gc.get_referrers"),
    ("a setting", lambda: sys.getrecursionlimit(), "sys.getrecursionlimit"),
    ("a frame", lambda: sys._getframe(), "sys._getframe"),
    ("the stack", lambda: list(traceback.walk_stack(None)), "walk_stack"),
    ("a signature", lambda: inspect.signature(one_and_two), "inspect.signature"),
    ("weak references", lambda: weakref.getweakrefcount(Sink), "weakref.getweakrefcount"),
    ("subclasses", lambda: Sink.__subclasses__(), "__subclasses__"),
    ("decimal", lambda: decimal.Decimal("1"), "Decimal"),
    ("decimal from a float", lambda: decimal.Decimal.from_float(1.0), "Decimal"),
    ("decimal context", lambda: decimal.getcontext(), "decimal.getcontext"),
    ("local time", lambda: datetime.datetime.fromtimestamp(0), "fromtimestamp"),
    ("event loop that runs", lambda: asyncio._get_running_loop(), "asyncio._get_running_loop"),
    ("conventions", lambda: locale.localeconv(), "locale.localeconv"),
    ("library opened", lambda: ctypes.CDLL(None), "ctypes.dlopen"),
    ("memory by its address", lambda: ctypes.c_float.from_address(ctypes.addressof(NUMBER)), "from_address() of ctypes"),
    ("an array by its address", lambda: (ctypes.c_int * 1).from_address(ctypes.addressof(NUMBER)), "from_address() of"),
    ("a structure by its address", lambda: Pair.from_address(ctypes.addressof(PAIR)), "from_address() of ctypes"),
    ("a variable of C's", lambda: ctypes.c_int.in_dll(ctypes.pythonapi, "Py_OptimizeFlag"), "in_dll() of ctypes"),
    ("bytes by their address", lambda: ctypes.string_at(ctypes.addressof(NUMBER), 1), "ctypes.string_at"),
    ("a cast", lambda: ctypes.cast(POINTER, ctypes.c_void_p), "ctypes.cast"),
    ("a handler", lambda: signal.getsignal(signal.SIGUSR1), "signal.getsignal"),
    ("a limit of csv", lambda: csv.field_size_limit(), "csv.field_size_limit"),
    ("dialects of csv", lambda: csv.list_dialects(), "csv.list_dialects"),
    ("what handles errors of a codec", lambda: codecs.lookup_error("strict"), "codecs.lookup_error"),
    ("the error of a C function", lambda: ctypes.get_errno(), "ctypes.get_errno"),
    ("whether memory is traced", lambda: tracemalloc.is_tracing(), "tracemalloc.is_tracing"),
    ("users", lambda: pwd.getpwuid(0), "pwd.getpwuid"),
]


@dataclasses.dataclass
class Data:
    first: int = 1
    second: typing.Optional[str] = None


class Colour(enum.Enum):
    RED = 1


@contextlib.contextmanager
def manager():
    yield 1


@functools.lru_cache(None)
def cached(value):
    return value


class Slots:
    __slots__ = ("value",)

    def __init__(self):
        self.value = 1


def with_manager():
    with manager() as value, contextlib.suppress(KeyError), contextlib.ExitStack() as stack:
        stack.callback(int)
        return {}[value]


def local_class():
    class Local(collections.namedtuple("Pair", "a b")):
        pass

    return Local(1, 2)


def exceptions():
    try:
        raise ValueError("x")
    except ValueError as error:
        return str(error), sys.exc_info()[0]


def warn_once():
    warnings.warn("only once", stacklevel=1)


def asks_for_imported():
    import os.path
    from json import dumps

    return os.path.join("a", "b"), dumps([1])


HARMLESS = [
    ("arithmetic", lambda: sum(math.sqrt(i) for i in range(4))),
    ("containers", lambda: (sorted({3, 1}), dict(a=1), collections.OrderedDict(a=1), collections.deque([1], 2))),
    ("dataclass", lambda: dataclasses.replace(Data(), first=2)),
    ("enum", lambda: Colour(1) is Colour["RED"]),
    ("slots", lambda: Slots().value),
    ("context managers", with_manager),
    ("cached", lambda: cached(1)),
    ("partial and reduce", lambda: functools.reduce(functools.partial(operator.add), [1, 2])),
    ("itertools", lambda: list(itertools.chain([1], itertools.islice(itertools.count(), 2)))),
    ("exceptions", exceptions),
    ("a class is made", local_class),
    ("logger that is not enabled", lambda: LOGGER.debug("x")),
    ("a level is asked for", lambda: LOGGER.isEnabledFor(logging.INFO) or LOGGER.getEffectiveLevel()),
    ("a warning that was shown before", warn_once),
    ("import of what is imported", asks_for_imported),
    ("paths", lambda: os.path.normpath(os.path.join("/a", "..", "b")) + os.path.basename("c/d") + os.fspath("e")),
    ("environment read", lambda: os.environ.get("HOME", "") + os.getenv("GRAPE_NONE", "")),
    ("process id", lambda: os.getpid() + (os.cpu_count() or 0)),
    ("json", lambda: json.loads(json.dumps({"a": [1, None]}))),
    ("regular expressions", lambda: re.sub(r"a(b)", r"\1", "ab")),
    ("deep copy", lambda: copy.deepcopy({"a": [Data()]})),
    ("weak references", lambda: weakref.ref(Slots)()),
    ("current thread", lambda: (threading.current_thread().name, threading.get_ident())),
    ("a lock taken and given back", lambda: LOCK.acquire() and LOCK.release()),
    ("time that is no clock", lambda: datetime.timedelta(seconds=1) + datetime.timedelta(days=1)),
    ("text", lambda: "{:>5}{!r}".format(1, "a") + "%s" % 2 + repr([Data()])),
    ("attributes", lambda: (getattr(math, "pi"), hasattr(math, "nothing"), isinstance(1, typing.Hashable))),
    ("code that is compiled", lambda: eval("1 + 1") + len(compile("1", "x", "eval").co_consts)),
    ("generators", lambda: list(i for i in (yield_two()))),
    ("hash", lambda: hash("a") + hash((1, ("a", None)))),
    ("interned", lambda: sys.intern("a") + sys.getdefaultencoding()),
]


def yield_two():
    yield 1
    yield from [2]


def tearDownModule():
    POOL.shutdown()
    for resource in (NULL, NULL_BYTES, *SOCKETS):
        resource.close()


class EffectsTest(unittest.TestCase):
    def setUp(self):
        self.observation = Observation()

    def check_refused(self, function, expected):
        self.observation.run(function)
        self.assertIn(expected, self.observation.reason)

    def test_refused(self):
        path = os.path.join(tempfile.mkdtemp(), "")
        with open(path + "this_is_imported_anew.py", "w"):
            pass
        sys.path.insert(0, path)
        os.environ["GRAPE_TEST_X"] = "0"
        stdin, sys.stdin = sys.stdin, io.StringIO("a line\n" * 9)
        try:
            for name, function, expected in REFUSED:
                with self.subTest(name):
                    for _ in range(3):
                        self.check_refused(function, expected)
                        self.assertIn("calls " if name != "import" else "imports ", self.observation.reason)
        finally:
            sys.stdin = stdin
            sys.path.remove(path)

    def test_values_of_ctypes(self):
        """They may be anybody's memory."""
        for _ in range(3):
            self.observation.run(lambda: ctypes.c_char_p(TEXT_ADDRESS).value)
            self.assertIn("reads a value of ctypes, which cannot be guarded", self.observation.reason)

    def test_harmless(self):
        with contextlib.redirect_stderr(io.StringIO()):
            for name, function in HARMLESS:
                function()
        for name, function in HARMLESS:
            with self.subTest(name):
                for _ in range(3):
                    self.observation.run(function)
                    self.assertEqual(self.observation.reason, "")

    def test_enough(self):
        self.assertGreaterEqual(len(REFUSED), 25)
        self.assertGreaterEqual(len(HARMLESS), 15)

    def test_nothing_stays(self):
        """After the observation the same functions are called as before, on this thread and others."""
        definitions = [time.time, print, os.getcwd, random.random, datetime.datetime.now, NULL.read]
        before = [function_address(function) for function in definitions]
        seen = []
        self.observation.run(lambda: seen.extend(function_address(function) for function in definitions))
        self.assertEqual([function_address(function) for function in definitions], before)
        self.assertTrue(all(during != was for during, was in zip(seen, before)), (seen, before))

    def test_place(self):
        line = sys._getframe().f_lineno + 1
        self.observation.run(lambda: print("", file=Sink()))
        self.assertEqual(self.observation.reason, "calls print() at observation/effects_test.py:%d" % line)
        self.observation.run(lambda: LOGGER.warning("x"))
        self.assertEqual(self.observation.reason, "calls Logger._log() at observation/effects_test.py:%d" % (line + 2))

    def test_first_effect_is_the_reason(self):
        self.observation.run(lambda: (time.time(), print("", file=Sink())))
        self.assertIn("time.time", self.observation.reason)

    def test_exception_that_leaves(self):
        with self.assertRaises(KeyError) as caught_error:
            self.observation.run(lambda: {}["absent"])
        self.assertEqual(str(caught_error.exception), "'absent'")
        observation = self.observation
        observation.begin()
        observation.end()
        self.assertEqual(observation.reason, "")

    def test_reused(self):
        self.observation.run(lambda: time.time())
        self.observation.run(lambda: 1)
        self.assertEqual(self.observation.reason, "")

    def test_nothing_lives_longer(self):
        """What closures, frames and generators of the call hold dies when it dies without observation."""

        class Thing:
            pass

        def call():
            def make():
                thing = Thing()
                seen.append(weakref.ref(thing))
                return lambda: thing

            def generate(thing):
                seen.append(weakref.ref(thing))
                yield thing

            make()()
            next(generate(Thing()))
            kept = make()
            kept()
            return [reference() is None for reference in seen], kept

        seen = []
        dead, kept = self.observation.run(call)
        self.assertEqual(dead, [True, True, False])
        del kept
        self.assertTrue(all(reference() is None for reference in seen))


def function_address(function):
    """Where the C function of a builtin function lies: in its definition, behind the name."""
    definition = ctypes.c_void_p.from_address(id(function) + 16).value
    return ctypes.c_void_p.from_address(definition + 8).value


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
