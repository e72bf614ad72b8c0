"""The test's view of python_hooks/state: what the guards say of a call."""
import ctypes
import functools

import probe

_LIBRARY = probe.HOLDING  # called with the GIL held
_LIBRARY.probe_code_new.restype = ctypes.c_void_p
_LIBRARY.probe_code_reason.restype = ctypes.c_char_p
for _name in ("delete", "begin", "end", "reason"):
    getattr(_LIBRARY, "probe_code_" + _name).argtypes = [ctypes.c_void_p]


class Observation:
    """Runs calls under a collector of executed code. `reason` is empty where the last one has no effect."""

    def __init__(self):
        self.handle = _LIBRARY.probe_code_new()
        self.reason = None

    def __del__(self):
        _LIBRARY.probe_code_delete(self.handle)

    def begin(self):
        return bool(_LIBRARY.probe_code_begin(self.handle))

    def end(self):
        return self.ended(_LIBRARY.probe_code_end(self.handle))

    def end_without_python(self):
        """What ends it from code that is observed, without adding to it."""
        return functools.partial(_LIBRARY.probe_code_end, self.handle)

    def ended(self, good):
        self.reason = _LIBRARY.probe_code_reason(self.handle).decode()
        assert bool(good) == (self.reason == "")
        return bool(good)

    def run(self, function, *arguments, **keywords):
        # No code of this file may run in between.
        begin, end, handle = _LIBRARY.probe_code_begin, _LIBRARY.probe_code_end, self.handle
        if not begin(handle):
            raise RuntimeError("not to be observed")
        try:
            return function(*arguments, **keywords)
        finally:
            self.ended(end(handle))


_LIBRARY.probe_globals_take.restype = ctypes.c_void_p
_LIBRARY.probe_globals_take.argtypes = [ctypes.c_void_p]
_LIBRARY.probe_globals_reason.restype = ctypes.c_char_p
_LIBRARY.probe_globals_delete.argtypes = [ctypes.c_void_p]
_LIBRARY.probe_globals_holds.argtypes = [ctypes.c_void_p]
_LIBRARY.probe_globals_change.argtypes = [ctypes.c_void_p]
_LIBRARY.probe_globals_change.restype = ctypes.c_char_p
_LIBRARY.probe_globals_time.argtypes = [ctypes.c_void_p, ctypes.c_int]
_LIBRARY.probe_globals_time.restype = ctypes.c_double


class Refused(Exception):
    pass


class Globals:
    """A guard of what the code of an observation names."""

    def __init__(self, observation):
        self.handle = _LIBRARY.probe_globals_take(observation.handle)
        if not self.handle:
            raise Refused(_LIBRARY.probe_globals_reason().decode())

    def __del__(self):
        if self.handle:
            _LIBRARY.probe_globals_delete(self.handle)

    def holds(self):
        return bool(_LIBRARY.probe_globals_holds(self.handle))

    @property
    def change(self):
        return _LIBRARY.probe_globals_change(self.handle).decode()

    def microseconds(self, calls=1000):
        return _LIBRARY.probe_globals_time(self.handle, calls)
