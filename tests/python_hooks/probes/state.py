"""The scripts' view of the probe library: walks and guards as Python objects."""

import ctypes
import os
import sys

PROBE = ctypes.PyDLL(os.environ["PROBE_LIBRARY"])
OBJECT, POINTER, SIZE = ctypes.py_object, ctypes.c_void_p, ctypes.c_size_t


def declare(name, result, *arguments):
    function = getattr(PROBE, name)
    function.restype, function.argtypes = result, list(arguments)
    return function


load = declare("state_load", ctypes.c_int)
load_torch = declare("state_load_torch", ctypes.c_int)
tells_of_changes = declare("state_tells_of_changes", ctypes.c_int, OBJECT)
reports_changes = declare("state_reports_changes", ctypes.c_int, OBJECT)
cpu_is_device = declare("state_cpu_is_device", None, ctypes.c_int)
walk_new = declare("walk_new", POINTER, ctypes.c_int)
walk_new_portable = declare("walk_new_portable", POINTER)
walk_delete = declare("walk_delete", None, POINTER)
walk_clear = declare("walk_clear", None, POINTER)
walk_add = declare("walk_add", ctypes.c_int, POINTER, OBJECT, ctypes.c_char_p)
walk_bytes = declare("walk_bytes", POINTER, POINTER, ctypes.POINTER(SIZE))
walk_reason = declare("walk_reason", ctypes.c_char_p, POINTER)
walk_objects = declare("walk_objects", SIZE, POINTER)
walk_object = declare("walk_object", OBJECT, POINTER, SIZE)
walk_tensors = declare("walk_tensors", SIZE, POINTER)
walk_extent_of = declare("walk_extent_of", ctypes.c_uint32, POINTER, SIZE)
walk_extents = declare("walk_extents", SIZE, POINTER, ctypes.POINTER(ctypes.c_uint64), SIZE)
walk_note_numbers = declare("walk_note_numbers", None, ctypes.c_void_p)
walk_numbers = declare("walk_numbers", SIZE, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64), SIZE)
walk_time = declare("walk_time", ctypes.c_double, OBJECT, ctypes.c_int, SIZE)
memo_new = declare("memo_new", POINTER)
memo_delete = declare("memo_delete", None, POINTER)
memo_record = declare("memo_record", ctypes.c_int, POINTER, OBJECT, SIZE)
memo_keeps = declare("memo_keeps", ctypes.c_int, POINTER, OBJECT)
memo_recalled = declare("memo_recalled", ctypes.c_uint64, POINTER)
memo_time = declare("memo_time", ctypes.c_double, POINTER, OBJECT, ctypes.c_int, SIZE)
walk_recall = declare("walk_recall", None, POINTER, POINTER)
guard_take = declare("guard_take", POINTER, OBJECT)
guard_reason = declare("guard_reason", ctypes.c_char_p)
guard_delete = declare("guard_delete", None, POINTER)
guard_holds = declare("guard_holds", ctypes.c_int, POINTER)
guard_change = declare("guard_change", ctypes.c_char_p, POINTER)
guard_bytes = declare("guard_bytes", POINTER, POINTER, ctypes.POINTER(SIZE))
guard_walks = declare("guard_walks", ctypes.c_uint32, POINTER)
guard_objects = declare("guard_objects", SIZE, POINTER)
guard_extents = declare("guard_extents", SIZE, POINTER)
guard_time = declare("guard_time", ctypes.c_double, POINTER, ctypes.c_int, SIZE)
guard_sharing = declare("guard_sharing", SIZE, POINTER, POINTER, ctypes.POINTER(ctypes.c_uint64), SIZE)
sharing_time = declare("sharing_time", ctypes.c_double, POINTER, POINTER, ctypes.c_int, SIZE)
dispatch = declare("dispatch_state", ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(SIZE))
switches = declare("switches", ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(SIZE))
switches_asked_of_python = declare("switches_asked_of_python", SIZE)
dispatch_time = declare("dispatch_time", ctypes.c_double, ctypes.c_int, SIZE)
host_random_new = declare("host_random_new", ctypes.c_void_p)
host_random_delete = declare("host_random_delete", None, ctypes.c_void_p)
host_random_unmoved = declare("host_random_unmoved", ctypes.c_int, ctypes.c_void_p)

assert load(), "the probe does not know this Python"


class Refused(Exception):
    pass


def read(function, handle):
    size = SIZE()
    data = function(handle, ctypes.byref(size))
    return ctypes.string_at(data, size.value)


class Walk:
    def __init__(self, *roots, addresses=False, portable=False, numbers=False):
        self.handle = walk_new_portable() if portable else walk_new(int(addresses))
        if numbers:
            walk_note_numbers(self.handle)
        for root in roots:
            self.add(root)

    def __del__(self):
        walk_delete(self.handle)

    def add(self, root, name="root"):
        if not walk_add(self.handle, root, name.encode()):
            raise Refused(walk_reason(self.handle).decode())

    @property
    def bytes(self):
        return read(walk_bytes, self.handle)

    @property
    def numbers(self):
        """What is at the places of numbers, and the rest of the bytes."""
        count, data = walk_numbers(self.handle, None, 0), bytearray(self.bytes)
        places = (ctypes.c_uint64 * max(count, 1))()
        walk_numbers(self.handle, places, count)
        numbers = []
        for place in places[:count]:
            numbers.append(int.from_bytes(data[place : place + 8], "little", signed=True))
            data[place : place + 8] = bytes(8)
        return numbers, bytes(data)

    @property
    def objects(self):
        return [walk_object(self.handle, i) for i in range(walk_objects(self.handle))]

    @property
    def tensor_extents(self):
        return [walk_extent_of(self.handle, i) for i in range(walk_tensors(self.handle))]

    @property
    def extents(self):
        count = walk_extents(self.handle, None, 0)
        pairs = (ctypes.c_uint64 * (2 * max(count, 1)))()
        walk_extents(self.handle, pairs, count)
        return [(pairs[2 * i], pairs[2 * i + 1]) for i in range(count)]


class Memo:
    """What a walk wrote of one of its roots, for walks to come."""

    def __init__(self):
        self.handle = memo_new()

    def __del__(self):
        memo_delete(self.handle)

    def record(self, *roots, index=0):
        return bool(memo_record(self.handle, roots, index))

    def keeps(self, root):
        return bool(memo_keeps(self.handle, root))

    @property
    def recalled(self):
        return memo_recalled(self.handle)

    def walk(self, *roots):
        """With what is kept; a Refused where one of the roots is refused."""
        walk = Walk()
        walk_recall(walk.handle, self.handle)
        for root in roots:
            walk.add(root)
        return walk


def form(*roots, addresses=False):
    return Walk(*roots, addresses=addresses).bytes


def form_and_objects(root):
    """What a guard stands on: the form, and which objects it is of."""
    walk = Walk(root, addresses=True)
    return walk.bytes, [id(found) for found in walk.objects]


def refusal(*roots):
    try:
        form(*roots)
    except Refused as refused:
        return str(refused)
    return None


class Guard:
    def __init__(self, module):
        self.handle = guard_take(module)
        if not self.handle:
            raise Refused(guard_reason().decode())

    def __del__(self):
        if self.handle:
            guard_delete(self.handle)

    def holds(self):
        return bool(guard_holds(self.handle))

    @property
    def walks(self):
        return guard_walks(self.handle)

    @property
    def change(self):
        return guard_change(self.handle).decode()

    @property
    def bytes(self):
        return read(guard_bytes, self.handle)

    def sharing(self, walk, most=1024):
        words = (ctypes.c_uint64 * most)()
        return words[: guard_sharing(self.handle, walk.handle, words, most)]


def dispatch_state():
    """The bytes, or a Refused."""
    buffer, size = ctypes.create_string_buffer(256), SIZE()
    if not dispatch(buffer, ctypes.byref(size)):
        raise Refused(guard_reason().decode())
    return buffer.raw[: size.value]


def switch_bytes(by_python=False):
    """Of torch's switches alone, also as only torch's own functions tell them."""
    buffer, size = ctypes.create_string_buffer(256), SIZE()
    assert switches(by_python, buffer, ctypes.byref(size))
    return buffer.raw[: size.value]


def version():
    return sys.version_info[:2]
