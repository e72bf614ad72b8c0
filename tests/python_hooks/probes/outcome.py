"""The scripts' view of what is learned of a call and repeated (python_hooks/effects/call_outcome.h), and how they check it:
functions f(args) run eagerly, watched twice, and repeated with copies of what a third eager run made. Result,
arguments, types, aliasing and bytes must be what that run left. Tensors are on the CPU, and stand for a device's;
without PyTorch numbers stand for tensors.
"""
import contextlib
import collections
import ctypes
import enum
import gc
import operator
import os
import sys
import types
import unittest

try:
    import torch
except ImportError:
    torch = None

PROBE = ctypes.PyDLL(os.environ["PROBE_LIBRARY"])
PROBE.probe_observe.restype = ctypes.c_void_p
PROBE.probe_observe.argtypes = [ctypes.py_object] * 3
PROBE.probe_forget.argtypes = [ctypes.c_void_p]
PROBE.probe_drop_result.argtypes = [ctypes.c_void_p]
PROBE.probe_result.restype = ctypes.py_object
PROBE.probe_result.argtypes = [ctypes.c_void_p]
PROBE.probe_reason.restype = ctypes.c_char_p
PROBE.probe_reason.argtypes = [ctypes.c_void_p]
PROBE.probe_difference.restype = ctypes.c_char_p
PROBE.probe_difference.argtypes = [ctypes.c_void_p] * 2
PROBE.probe_made_count.argtypes = [ctypes.c_void_p]
PROBE.probe_made.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int64)]
PROBE.probe_repeat.restype = ctypes.py_object
PROBE.probe_repeat.argtypes = [ctypes.c_void_p] + [ctypes.py_object] * 3
PROBE.probe_repeat_failing.restype = ctypes.py_object
PROBE.probe_repeat_failing.argtypes = [ctypes.c_void_p] + [ctypes.py_object] * 3 + [
    ctypes.c_int, ctypes.POINTER(ctypes.c_int)]
PROBE.probe_time.restype = ctypes.c_double
PROBE.probe_time.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object, ctypes.c_int]

DTYPES = torch and {
    0: torch.uint8, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32, 7: torch.float64,
    11: torch.bool, 15: torch.bfloat16}


class Observed:
    """One watched call."""

    def __init__(self, function, arguments, module, mode=torch.no_grad if torch else contextlib.nullcontext):
        with mode():
            self.handle = PROBE.probe_observe(function, arguments, module)

    def __del__(self):
        PROBE.probe_forget(self.handle)

    def reason(self):
        reason = PROBE.probe_reason(self.handle)
        return None if reason is None else reason.decode()

    def result(self):
        return PROBE.probe_result(self.handle)

    def difference(self, other):
        text = PROBE.probe_difference(self.handle, other.handle)
        return None if text is None else text.decode()

    def made(self):
        words = (ctypes.c_int64 * 64)()
        out = []
        for i in range(PROBE.probe_made_count(self.handle)):
            PROBE.probe_made(self.handle, i, words)
            group, storage, storage_bytes, kind, _, offset, dims = words[:7]
            out.append((group, storage, storage_bytes, kind, offset, tuple(words[7:7 + dims]),
                        tuple(words[7 + dims:7 + 2 * dims])))
        return out

    def copies(self):
        """Tensors as this call made them, with the bytes that theirs have now, in memory of their own."""
        storages, out = {}, []
        for group, storage, storage_bytes, kind, offset, sizes, strides in self.made():
            if group not in storages:
                copy = torch.empty(storage_bytes, dtype=torch.uint8)
                if storage_bytes:
                    ctypes.memmove(copy.data_ptr(), storage, storage_bytes)
                storages[group] = copy.untyped_storage()
            out.append(torch.empty(0, dtype=DTYPES[kind]).set_(storages[group], offset, sizes, strides))
        return out

    def repeat(self, tensors, arguments):
        """The result; `REFUSED` if nothing came back."""
        return PROBE.probe_repeat(self.handle, tensors, arguments, REFUSED)


REFUSED = object()


class Form:
    """Writes objects down so that two graphs of objects that cannot be told apart give equal text."""

    def __init__(self, module=None):
        self.lines, self.numbers, self.storages, self.keep = [], {}, {}, []
        self.of_module = {id(x) for x in (*module.parameters(), *module.buffers())} if torch and module else ()

    def add(self, value, path):
        if value is None or type(value) in (bool, int, float, complex, str, bytes, range, slice, type(...)):
            return self.lines.append(f"{path} {type(value).__name__} {value!r}")
        if isinstance(value, (type, enum.Enum, types.FunctionType, types.ModuleType)):
            return self.lines.append(f"{path} is {value!r} {id(value)}")
        if torch and type(value) in (torch.dtype, torch.device, torch.Size):
            return self.lines.append(f"{path} {value!r}")
        if type(value) is tuple:  # has no identity of its own
            self.lines.append(f"{path} tuple of {len(value)}")
            return self.add_items(value, path)
        if id(value) in self.numbers:
            return self.lines.append(f"{path} same as {self.numbers[id(value)]}")
        self.numbers[id(value)] = len(self.numbers)
        self.keep.append(value)
        self.lines.append(f"{path} #{self.numbers[id(value)]} {type(value).__qualname__} {id(type(value))}")
        if torch and isinstance(value, torch.Tensor):
            return self.add_tensor(value, path)
        for base in type(value).__mro__:
            for name, member in vars(base).items():
                if isinstance(member, types.MemberDescriptorType):
                    try:
                        self.add(member.__get__(value), f"{path}.{base.__name__}.{name}")
                    except AttributeError:
                        self.lines.append(f"{path}.{name} unset")
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            attributes = {}
        for name, item in attributes.items():
            self.add(item, f"{path}.{name}")
        self.add_items(value, path)

    def add_items(self, value, path):
        if isinstance(value, collections.deque):
            self.lines.append(f"{path} at most {value.maxlen}")
        if isinstance(value, dict):
            base = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
            for key, item in base.items(value):
                self.add(item, f"{path}[{type(key).__name__} {key!r}]")
        elif isinstance(value, (tuple, list, collections.deque)):
            base = next(b for b in (tuple, list, collections.deque) if isinstance(value, b))
            for i, item in enumerate(base.__iter__(value)):
                self.add(item, f"{path}[{i}]")
        elif isinstance(value, (set, frozenset)):
            self.lines.append(f"{path} {sorted(value)!r}")

    def add_tensor(self, tensor, path):
        storage = tensor.untyped_storage()
        number = self.storages.setdefault(storage.data_ptr(), len(self.storages)) if storage.nbytes() else "none"
        content = bytes(torch.empty(0, dtype=torch.uint8).set_(storage).tolist())
        self.lines.append(f"{path} {tensor.dtype} {tuple(tensor.shape)} {tensor.stride()} {tensor.storage_offset()} "
                          f"grad={tensor.requires_grad} storage {number}: {storage.nbytes()} {content!r}")
        if not tensor.is_inference() and id(tensor) not in self.of_module:  # the module has one for all calls
            self.lines.append(f"{path} version {tensor._version}")
        for name, item in vars(tensor).items():
            self.add(item, f"{path}.{name}")


def form(*roots):
    """The last one is the module."""
    out = Form(roots[-1])
    for i, root in enumerate(roots):
        out.add(root, f"root{i}")
    return out.lines


def shared_versions(*roots):
    """For each tensor the first one that it shares its version with. Moves them."""
    out = Form()
    out.add(roots, "roots")
    tensors = [x for x in out.keep if torch and isinstance(x, torch.Tensor) and not x.is_inference()]
    first = {}
    for i, tensor in enumerate(tensors):
        before = [x._version for x in tensors]
        torch.autograd.graph.increment_version(tensor)
        for j, other in enumerate(tensors):
            if other._version != before[j]:
                first.setdefault(j, i)
    return [first[i] for i in range(len(tensors))]


def reachable(root):
    """All objects of a call's arguments, in an order that is the same for the next call's."""
    seen, out = set(), []

    def visit(value):
        if id(value) in seen or value is None or isinstance(value, (type, int, str, float, bytes)):
            return
        seen.add(id(value))
        out.append(value)
        if isinstance(value, dict):
            for item in dict.values(value):
                visit(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                visit(item)
        for item in getattr(value, "__dict__", {}).values():
            visit(item)
    visit(root)
    return out


def aligned(tensor):
    """A copy whose memory starts as a device's allocator starts it: to what modulo 512 is part of the walk's form."""
    raw = bytearray(tensor.numel() * tensor.element_size() + 512)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(raw)) % 512
    flat = torch.frombuffer(raw, dtype=tensor.dtype, offset=start, count=tensor.numel())
    flat.copy_(tensor.flatten())
    return torch.empty(0, dtype=tensor.dtype).set_(flat.untyped_storage(), 0, tensor.shape, tensor.stride())


SAID = []  # what test classes' code wrote: none of it must run


class Check(unittest.TestCase):
    also_counted = ()  # objects whose references must be balanced

    def check(self, function, make, module, ordered=True):
        """`make` makes arguments. `ordered`: the order of entries is kept also where memory runs out."""
        first, second = (Observed(function, make(), module) for _ in range(2))
        self.assertIsNone(first.reason())
        self.assertIsNone(second.reason())
        self.assertIsNone(first.difference(second))

        eager_arguments = make()
        eager_before = reachable(eager_arguments)
        eager = Observed(function, eager_arguments, module)
        expected = form(eager_before, eager_arguments, eager.result(), module)

        tensors, arguments = eager.copies(), make()
        before = reachable(arguments)
        untouched = form(before, arguments, module)
        for i in range(len(tensors)):
            self.assertIs(second.repeat(tensors[:i] + [None] + tensors[i + 1:], arguments), REFUSED)
        self.assertEqual(form(before, arguments, module), untouched)
        if ordered:
            self.check_without_memory(second, tensors, make, module)

        del SAID[:]
        tensors = eager.copies()
        result = second.repeat(tensors, arguments)
        self.assertEqual(SAID, [])
        self.assertIsNot(result, REFUSED)
        self.assertEqual(form(before, arguments, result, module), expected)
        self.assertEqual(shared_versions(before, arguments, result),
                         shared_versions(eager_before, eager_arguments, eager.result()))
        self.check_references(second, tensors, make, module)

    def check_without_memory(self, observed, tensors, make, module):
        """Fails at each place in turn: nothing must have changed."""
        arguments, left = make(), ctypes.c_int()
        before = reachable(arguments)
        untouched, n = form(before, arguments, module), 0
        while True:
            result = PROBE.probe_repeat_failing(observed.handle, tensors, arguments, REFUSED, n, ctypes.byref(left))
            if left.value >= 0:
                return self.assertIsNot(result, REFUSED)
            self.assertIs(result, REFUSED)
            self.assertEqual(form(before, arguments, module), untouched)
            n += 1

    def check_references(self, observed, tensors, make, module):
        watched = [module, *self.also_counted, *tensors]
        if torch:
            watched += [*module.parameters(), torch.float32]

        def round_trips(count, repeat):
            """Growth by that many calls: of the references to what is watched, and of the allocated blocks."""
            gc.collect()
            counts, blocks = list(map(sys.getrefcount, watched)), sys.getallocatedblocks()
            for _ in range(count):
                arguments = make()
                if repeat:
                    observed.repeat(tensors, arguments)
                del arguments
            gc.collect()
            after = sys.getallocatedblocks()
            return list(map(operator.sub, map(sys.getrefcount, watched), counts)), after - blocks

        round_trips(5, True)
        self.assertEqual(round_trips(50, True)[0], [0] * len(watched))
        # To make the arguments may leave something behind, too, and so may free lists, now and then.
        self.assertLess(min(round_trips(50, True)[1] - round_trips(50, False)[1] for _ in range(3)), 40)


def main():
    if PROBE.probe_load(int(torch is not None)) != 1:
        sys.exit("this interpreter is not understood")
    gc.collect()
    gc.freeze()  # PyTorch's own objects, many: the collections to come are of the tests'
    unittest.main()
