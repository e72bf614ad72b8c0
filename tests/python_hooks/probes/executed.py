"""The scripts' view of the probe library: observed calls, and guards of what their code names."""
import ctypes
import functools
import os

PROBE = ctypes.PyDLL(os.environ["PROBE_LIBRARY"])  # called with the GIL held


def declare(name, result, *arguments):
    function = getattr(PROBE, name)
    function.restype, function.argtypes = result, list(arguments)
    return function


HANDLE, TEXT = ctypes.c_void_p, ctypes.c_char_p
load = declare("code_load", ctypes.c_int)
load_torch = declare("code_load_torch", ctypes.c_int)
code_new = declare("code_new", HANDLE)
code_delete = declare("code_delete", None, HANDLE)
code_begin = declare("code_begin", ctypes.c_int, HANDLE)
code_end = declare("code_end", ctypes.c_int, HANDLE)
code_reason = declare("code_reason", TEXT, HANDLE)
code_followed_draws = declare("code_followed_draws", ctypes.c_int, HANDLE)
code_same_draws = declare("code_same_draws", ctypes.c_int, HANDLE, HANDLE)
code_decisions = declare("code_decisions", ctypes.c_int, HANDLE)
code_decide_the_same = declare("code_decide_the_same", ctypes.c_int, HANDLE)
code_repeat_draws = declare("code_repeat_draws", ctypes.c_int, HANDLE)
host_random_new = declare("host_random_new", HANDLE)
host_random_delete = declare("host_random_delete", None, HANDLE)
host_random_moved_by = declare("host_random_moved_by", ctypes.c_int, HANDLE, HANDLE)
code_digest = declare("code_digest", ctypes.c_uint64, HANDLE)
globals_digest = declare("globals_digest", ctypes.c_uint64, HANDLE)
globals_take = declare("globals_take", HANDLE, HANDLE)
globals_reason = declare("globals_reason", TEXT)
globals_delete = declare("globals_delete", None, HANDLE)
globals_plans = declare("globals_plans", ctypes.c_uint64)
globals_holds = declare("globals_holds", ctypes.c_int, HANDLE)
globals_change = declare("globals_change", TEXT, HANDLE)
globals_extents = declare("globals_extents", ctypes.c_size_t, HANDLE)
globals_time = declare("globals_time", ctypes.c_double, HANDLE, ctypes.c_int, ctypes.c_size_t)

assert load(), "the probe does not know this Python"


class Refused(Exception):
    pass


class Observation:
    """Runs calls under a collector of executed code. `reason` is empty where the last one has no effect."""

    def __init__(self):
        self.handle = code_new()
        self.reason = None

    def __del__(self):
        code_delete(self.handle)

    def begin(self):
        return bool(code_begin(self.handle))

    def end(self):
        return self.ended(code_end(self.handle))

    def end_without_python(self):
        """What ends it from code that is observed, without adding to it."""
        return functools.partial(code_end, self.handle)

    def ended(self, good):
        self.reason = code_reason(self.handle).decode()
        assert bool(good) == (self.reason == "")
        return bool(good)

    def run(self, function, *arguments, **keywords):
        # No code of this file may run in between.
        end, handle = code_end, self.handle
        if not code_begin(handle):
            raise RuntimeError("not to be observed")
        try:
            return function(*arguments, **keywords)
        finally:
            self.ended(end(handle))


    @property
    def digest(self):
        return code_digest(self.handle)


class Globals:
    """A guard of what the code of an observation names."""

    again = False  # is it the second one of the same observation, which shares the first one's plan?

    def __init__(self, observation):
        self.handle = None
        self.first = globals_take(observation.handle) if self.again else None
        self.handle = globals_take(observation.handle)
        if not self.handle:
            raise Refused(globals_reason().decode())

    def __del__(self):
        for handle in (self.first, self.handle):
            if handle:
                globals_delete(handle)

    def holds(self):
        return bool(globals_holds(self.handle))

    @property
    def change(self):
        return globals_change(self.handle).decode()

    @property
    def extents(self):
        return globals_extents(self.handle)

    @property
    def digest(self):
        return globals_digest(self.handle)

    def microseconds(self, calls=1000, trash=0):
        return globals_time(self.handle, calls, trash)
