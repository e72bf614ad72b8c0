"""What else decides which kernels run: torch's switches and modes; new tensors; random sources of the host."""

import contextlib
import ctypes
import os
import random
import sys
import threading
import warnings

import torch

import state
from state import Refused, dispatch_state

warnings.simplefilter("ignore")
assert state.load_torch(), "this PyTorch is not understood"

int64s = ctypes.POINTER(ctypes.c_int64)
new_tensor = state.declare("torch_new_tensor", ctypes.py_object, ctypes.c_int64, int64s, int64s, ctypes.c_int32)
new_alias = state.declare(
    "torch_new_alias",
    ctypes.py_object,
    ctypes.py_object,
    ctypes.c_int64,
    int64s,
    int64s,
    ctypes.c_int64,
    ctypes.c_int32,
)
FLOAT, LONG, BYTE = 6, 4, 0


def numbers(*values):
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(2)


def test_new_tensors():
    alone = object()  # from Python 3.14 a name that is passed on does not count once more
    made = new_tensor(2, numbers(3, 5), numbers(1, 3), FLOAT)
    assert type(made) is torch.Tensor and made.shape == (3, 5) and made.stride() == (1, 3)
    assert made.dtype == torch.float32 and not made.requires_grad and made.is_leaf and made._base is None
    assert sys.getrefcount(made) == sys.getrefcount(alone) and made.untyped_storage().nbytes() == 60
    made.fill_(2)
    assert made.sum().item() == 30
    scalar = new_tensor(0, numbers(), numbers(), LONG)
    assert scalar.shape == () and scalar.dtype == torch.int64
    assert new_tensor(1, numbers(0), numbers(1), BYTE).numel() == 0
    store = torch.arange(32, dtype=torch.float32)
    alias = new_alias(store, 2, numbers(2, 3), numbers(3, 1), 4, FLOAT)
    assert alias.tolist() == [[4, 5, 6], [7, 8, 9]] and alias._base is None and alias.storage_offset() == 4
    assert alias.untyped_storage().data_ptr() == store.data_ptr() and alias.is_leaf
    part = new_alias(store[8:], 1, numbers(2), numbers(1), 4, FLOAT)
    assert part.tolist() == [4, 5]
    other = new_alias(store[8:], 1, numbers(4), numbers(1), 3, BYTE)
    assert other.dtype == torch.uint8 and other.storage_offset() == 3
    assert other.data_ptr() == store.data_ptr() + 3
    alias.zero_()
    assert store[4:10].sum() == 0
    for _ in range(100):
        new_tensor(1, numbers(4), numbers(1), FLOAT)
        new_alias(store, 1, numbers(4), numbers(1), 0, FLOAT)
    assert sys.getrefcount(store) == sys.getrefcount(alone) and torch.ones(2)[0] == 1
    kept, quiet = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)  # PyTorch reports what it throws
    try:
        assert new_tensor(1, numbers(1 << 60), numbers(1), FLOAT) is None
    finally:
        os.dup2(kept, 2)
    with torch.inference_mode():
        assert new_tensor(1, numbers(4), numbers(1), FLOAT).is_inference()


def reduce(name, allowed):
    """Whether sums may be of reduced precision and, where that is a second question, split."""
    two = isinstance(getattr(torch._C, "_get_cublas_" + name)(), tuple)
    setattr(torch.backends.cuda.matmul, name, allowed if two else allowed[0])


def attention_order(order):
    torch._C._set_sdp_priority_order(order)


def carveout(units):
    torch._C._set_sm_carveout_experimental(units)


SWITCHES = {
    "grad": (lambda: torch.set_grad_enabled(False), lambda: torch.set_grad_enabled(True)),
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
    "deterministic": (
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.use_deterministic_algorithms(False),
    ),
    "deterministic, warn": (
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        lambda: torch.use_deterministic_algorithms(False),
    ),
    "precision": (
        lambda: torch.set_float32_matmul_precision("high"),
        lambda: torch.set_float32_matmul_precision("highest"),
    ),
    "tf32": (
        lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
        lambda: setattr(torch.backends.cudnn, "allow_tf32", True),
    ),
    "matmul tf32": (
        lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
        lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", False),
    ),
    "cudnn": (
        lambda: setattr(torch.backends.cudnn, "enabled", False),
        lambda: setattr(torch.backends.cudnn, "enabled", True),
    ),
    "benchmark": (
        lambda: setattr(torch.backends.cudnn, "benchmark", True),
        lambda: setattr(torch.backends.cudnn, "benchmark", False),
    ),
    "cudnn deterministic": (
        lambda: setattr(torch.backends.cudnn, "deterministic", True),
        lambda: setattr(torch.backends.cudnn, "deterministic", False),
    ),
    "flash": (lambda: torch.backends.cuda.enable_flash_sdp(False), lambda: torch.backends.cuda.enable_flash_sdp(True)),
    "efficient": (
        lambda: torch.backends.cuda.enable_mem_efficient_sdp(False),
        lambda: torch.backends.cuda.enable_mem_efficient_sdp(True),
    ),
    "math": (lambda: torch.backends.cuda.enable_math_sdp(False), lambda: torch.backends.cuda.enable_math_sdp(True)),
    "fp16 reduction": (
        lambda: setattr(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
        lambda: setattr(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", True),
    ),
    "bf16 reduction": (
        lambda: setattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
        lambda: setattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", True),
    ),
    "fill": (
        lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", False),
        lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", True),
    ),
    "blas": (
        lambda: torch.backends.cuda.preferred_blas_library("cublaslt"),
        lambda: torch.backends.cuda.preferred_blas_library("cublas"),
    ),
    "linalg": (
        lambda: torch.backends.cuda.preferred_linalg_library("magma"),
        lambda: torch.backends.cuda.preferred_linalg_library("default"),
    ),
    "fp16 reduction without split": (
        lambda: reduce("allow_fp16_reduced_precision_reduction", (False, False)),
        lambda: reduce("allow_fp16_reduced_precision_reduction", (True, True)),
    ),
    "bf16 reduction without split": (
        lambda: reduce("allow_bf16_reduced_precision_reduction", (False, False)),
        lambda: reduce("allow_bf16_reduced_precision_reduction", (True, True)),
    ),
    "benchmark limit": (
        lambda: setattr(torch.backends.cudnn, "benchmark_limit", 3),
        lambda: setattr(torch.backends.cudnn, "benchmark_limit", 10),
    ),
    "precision medium": (
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.set_float32_matmul_precision("highest"),
    ),
    "order": (lambda: attention_order([2, 1, 0, 3, 4]), lambda: attention_order([1, 2, 0, 3, 4])),
    "last of the order": (lambda: attention_order([1, 2, 0, 4, 3]), lambda: attention_order([1, 2, 0, 3, 4])),
    "half": (lambda: torch.set_default_dtype(torch.float16), lambda: torch.set_default_dtype(torch.float32)),
    "carveout": (lambda: carveout(5), lambda: carveout(None)),
    "carveout of none": (lambda: carveout(0), lambda: carveout(None)),
    **{
        f"precision of {name}": (
            lambda place=place: setattr(place, "fp32_precision", "ieee"),
            lambda place=place: setattr(place, "fp32_precision", "tf32"),
        )
        for name, place in (
            ("conv", getattr(torch.backends.cudnn, "conv", None)),
            ("rnn", getattr(torch.backends.cudnn, "rnn", None)),
        )
        if hasattr(place, "fp32_precision")
    },
    "default device": (lambda: torch.set_default_device("cpu"), lambda: torch.set_default_device(None)),
    "default device cuda": (lambda: torch.set_default_device("cuda:1"), lambda: torch.set_default_device(None)),
}


@contextlib.contextmanager
def autocast(dtype, cache=True):
    """What torch.autocast("cuda") does where there is a GPU."""
    before = torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", dtype)
    torch.set_autocast_cache_enabled(cache)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", before)
        torch.set_autocast_cache_enabled(True)


CONTEXTS = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: autocast(torch.bfloat16),
    "autocast fp16": lambda: autocast(torch.float16),
    "autocast without cache": lambda: autocast(torch.float16, False),
    "autocast cpu": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast inside of a disabled one": lambda: torch.autocast("cpu", enabled=False),
    "autocast of another type, disabled": lambda: torch.autocast("cpu", dtype=torch.float16, enabled=False),
}


SAME = [{"no_grad", "grad"}, {"matmul tf32", "precision"}]  # two names of one switch


def test_switches():
    for on, off in SWITCHES.values():  # some do not come back to what they were at first
        on()
        off()
    plain = dispatch_state()
    assert dispatch_state() == plain and len(plain) < 230, len(plain)
    seen = {plain: "plain"}
    for name, (on, off) in SWITCHES.items():
        on()
        now = dispatch_state()
        off()
        assert now not in seen or {name, seen[now]} in SAME, (name, seen.get(now))
        seen[now] = name
        assert dispatch_state() == plain, name
    for name, context in CONTEXTS.items():
        with context():
            now = dispatch_state()
        assert now not in seen or {name, seen[now]} in SAME, (name, seen.get(now))
        seen[now] = name
        assert dispatch_state() == plain, name
    with torch.inference_mode(), autocast(torch.float16):
        both = dispatch_state()
    assert both not in seen


def test_asked_directly():
    """What is read of at::Context is what torch's functions tell, also where they contradict each other."""
    by_version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if by_version == (2, 11):
        assert state.switches_asked_of_python() == 0
    for name, (on, off) in SWITCHES.items():
        on()
        told, by_python = state.switch_bytes(), state.switch_bytes(by_python=True)
        off()
        assert told == by_python, (name, told, by_python)
        if "carveout" not in name:  # an old one is left behind, and counts
            assert state.switch_bytes() == state.switch_bytes(by_python=True), name


class FunctionMode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        CALLS.append(function)
        return function(*args, **(kwargs or {}))


CALLS = []


def test_blocked():
    from torch.utils._python_dispatch import TorchDispatchMode

    class DispatchMode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            CALLS.append(function)
            return function(*args, **(kwargs or {}))

    def reason():
        try:
            dispatch_state()
        except Refused as refused:
            return str(refused)
        return None

    assert reason() is None
    with FunctionMode():
        assert "TorchFunctionMode" in reason()
    with DispatchMode():
        assert "TorchDispatchMode" in reason()
    assert CALLS == []
    with torch.profiler.profile():
        assert "profiler" in reason()
    seen = []
    torch.func.vmap(lambda x: (seen.append(reason()), x)[1])(torch.ones(2, 2))
    torch.func.grad(lambda x: (seen.append(reason()), x.sum())[1])(torch.ones(2))
    torch.jit.trace(lambda x: (seen.append(reason()), x + 1)[1], torch.ones(2), check_trace=False)
    with fake().fake_mode:
        seen.append(reason())
    with torch.device("cpu"), FunctionMode():
        seen.append(reason())
    with torch.autograd.forward_ad.dual_level():
        seen.append(reason())
    assert all(seen) and len(seen) == 6, seen
    sys.settrace(lambda *_: None)
    traced = reason()
    sys.settrace(None)
    assert "sys.settrace" in traced
    assert reason() is None
    results = []
    thread = threading.Thread(target=lambda: results.append(dispatch_state()))
    with torch.no_grad():
        thread.start()
        thread.join()
    assert results == [dispatch_state()]  # each thread has its own


class Moved:
    """Has any generator of the host moved since?"""

    def __init__(self):
        self.handle = state.host_random_new()

    def __del__(self):
        state.host_random_delete(self.handle)

    def __bool__(self):
        return not state.host_random_unmoved(self.handle)


def test_host_random():
    steps = [random.random, lambda: torch.rand(1), lambda: random.gauss(0, 1)]
    try:
        import numpy

        steps += [lambda: numpy.random.rand(), lambda: numpy.random.randint(5)]
    except ImportError:
        pass
    for step in steps:
        moved = Moved()
        assert not moved and not moved
        step()
        assert moved and moved and not Moved()
    kept, moved = random.getstate(), Moved()
    random.random()
    assert moved
    random.setstate(kept)
    assert not moved
    kept, moved = torch.get_rng_state(), Moved()
    torch.randn(3)
    assert moved
    torch.set_rng_state(kept)
    assert not moved


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
