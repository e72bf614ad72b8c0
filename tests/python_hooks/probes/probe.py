"""The test's view of the probe library: calls into it, and its events as Python values."""
import ctypes
import os
import struct
import sys
import time

PATH = os.environ["PROBE_LIBRARY"]
LIBRARY = ctypes.CDLL(PATH)  # its calls let go of the GIL, as PyTorch's ops do
HOLDING = ctypes.PyDLL(PATH)  # its calls keep it
LIBRARY.probe_version.restype = ctypes.c_char_p
LIBRARY.probe_place.restype = ctypes.c_char_p
LIBRARY.probe_time.restype = ctypes.c_double
for name in ("probe_threads", "probe_this_thread", "probe_words"):
    getattr(LIBRARY, name).restype = ctypes.c_uint64
LIBRARY.probe_words.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64]

DEF_CODE, DEF_FRAME, DEF_SCOPE = 2, 3, 5
CALL, SCOPE_BEGIN, SCOPE_END, SCOPE_ATTACH = 17, 20, 21, 22
KINDS = {1: "module", 2: "backward", 3: "optimizer", 4: "function"}


def settle(seconds=0.5):
    """Makes driver calls until the hooks had time to be installed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        LIBRARY.probe_driver_call()
        time.sleep(0.01)


def low(word):
    return word & 0xFFFFFFFF


def high(word):
    return word >> 32


def text(words, count):
    raw = struct.pack("<%dQ" % len(words), *words)
    assert not any(raw[count : (count + 7) // 8 * 8]), "padding is not zero"
    return raw[:count].decode("utf-8"), words[(count + 7) // 8 :]


class Thread:
    """One thread's events from `start` on, with its definitions resolved."""

    def __init__(self, number=None, start=0):
        self.number = LIBRARY.probe_this_thread() if number is None else number
        self.codes, self.frames, self.scopes, self.events = {}, {}, {}, []
        count = LIBRARY.probe_words(self.number, 0, None, 0)
        buffer = (ctypes.c_uint64 * max(count, 1))()
        LIBRARY.probe_words(self.number, 0, buffer, count)
        words, at = list(buffer[:count]), 0
        while at < count:
            size, kind = low(words[at]) // 8, high(words[at]) & 0xFFFF
            if at >= start or kind < 16:
                self.take(kind, words[at + 4 : at + size])
            at += size
        self.end = count

    def take(self, kind, words):
        if kind == DEF_CODE:
            file, rest = text(words[3:], low(words[2]))
            name, _ = text(rest, high(words[2]))
            assert low(words[0]) not in self.codes
            self.codes[low(words[0])] = (file, name, high(words[0]))
        elif kind == DEF_FRAME:
            assert low(words[0]) not in self.frames
            assert high(words[0]) == 0 or high(words[0]) in self.frames
            self.frames[low(words[0])] = (high(words[0]), self.codes[low(words[1])], high(words[1]))
        elif kind == DEF_SCOPE:
            name, rest = text(words[3:], low(words[2]))
            type_name, _ = text(rest, high(words[2]))
            self.scopes[low(words[0])] = (KINDS[high(words[0])], name, type_name, words[1])
        elif kind == CALL:
            self.events.append(("call", low(words[1])))
        elif kind == SCOPE_BEGIN:
            self.events.append(("begin", self.scopes[low(words[0])], words[1], high(words[0])))
        elif kind == SCOPE_END:
            self.events.append(("end", self.scopes[low(words[0])], words[1], high(words[0])))
        elif kind == SCOPE_ATTACH:
            self.events.append(("attach", words[0]))

    def stack(self, frame):
        """Innermost first: (file, name, first line, line)."""
        result = []
        while frame:
            frame, code, line = self.frames[frame]
            result.append(code + (line,))
        return result


def python_stack(frame):
    """What Python itself says of `frame` and its callers, in the form of Thread.stack."""
    result = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        result.append((code.co_filename, name, code.co_firstlineno, frame.f_lineno or 0))
        frame = frame.f_back
    return result


def version():
    return sys.version_info[:2]
