"""The test's view of python_hooks/state: what the guards say of a call."""
import ctypes

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
        good = bool(_LIBRARY.probe_code_end(self.handle))
        self.reason = _LIBRARY.probe_code_reason(self.handle).decode()
        assert good == (self.reason == "")
        return good

    def run(self, function, *arguments):
        if not self.begin():
            raise RuntimeError("not to be observed")
        try:
            return function(*arguments)
        finally:
            self.end()
