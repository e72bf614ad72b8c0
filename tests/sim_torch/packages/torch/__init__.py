"""A simulated PyTorch: as much of its Python side as small models need, over the libraries in sim_torch/.

SIM_TORCH_LIBRARIES names the folder of these.
"""
import importlib.machinery
import importlib.util
import inspect  # noqa: F401  (as the real one does; Grape takes the instructions from `opcode`, which comes with it)
import logging  # noqa: F401  (as the real one does)
import os
import sys


def _load_extension():
    # As torch._C does: the loader finds libtorch_python.so, and that the others.
    path = os.path.join(os.environ["SIM_TORCH_LIBRARIES"], "libtorch_python.so")
    loader = importlib.machinery.ExtensionFileLoader("torch._C", path)
    spec = importlib.util.spec_from_file_location("torch._C", path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules["torch._C"] = module
    return module


_C = _load_extension()
sys.modules["torch._C._autograd"] = _C._autograd

from torch._C import (  # noqa: E402
    Generator, OutOfMemoryError, affine, arange, bfloat16, bool, cat, complex64, contiguous_format, delay, device,
    dropout, dtype, empty, float32, float64, from_dlpack, full, int16, int32, int64, is_grad_enabled, layout, memory_format, ones,
    relu, strided, take, tensor, uint8, zeros,
)


rand = _C._VariableFunctionsClass.rand


class TorchVersion(str):
    """As torch.torch_version has it: no str of its own kind."""


__version__ = TorchVersion("2.11.0+sim")


class version:
    cuda = "13.0"


class Size(tuple):
    __slots__ = ()

    def numel(self):
        product = 1
        for size in self:
            product *= size
        return product


class Tensor(_C.TensorBase):
    """What operators make."""


_C._set_classes(Tensor, Size)
_C.default_generator = Generator()


class _KeySet:
    def __init__(self, bits):
        self._bits = bits

    def raw_repr(self):
        return self._bits


class _Keys:
    CPU, CUDA = _C._KEY_CPU, _C._KEY_CUDA
    AutocastCPU, AutocastCUDA, Dense = _C._KEY_AutocastCPU, _C._KEY_AutocastCUDA, _C._KEY_Dense


_C.DispatchKey, _C.DispatchKeySet = _Keys, _KeySet
_C._dispatch_keys = lambda x: _KeySet(_C._raw_dispatch_keys(x))
_C._dispatch_tls_local_include_set = lambda: _KeySet(_C._raw_included_keys())


class _Mode:
    """A switch of the thread, set inside of a `with`."""

    def __init__(self, value):
        self._value = value

    def __enter__(self):
        self._before = self._set(self._value)

    def __exit__(self, *_):
        self._set(self._before)


class set_grad_enabled(_Mode):
    _set = staticmethod(_C._set_grad_enabled)


class no_grad(set_grad_enabled):
    def __init__(self):
        super().__init__(False)


class enable_grad(set_grad_enabled):
    def __init__(self):
        super().__init__(True)


class inference_mode(_Mode):
    _set = staticmethod(_C._set_inference)

    def __init__(self, mode=True):
        super().__init__(mode)


class autocast(_Mode):
    _set = staticmethod(_C._set_autocast)

    def __init__(self, device_type, enabled=True):
        super().__init__(enabled)


class _DisableTorchFunction:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


_C.DisableTorchFunction = _DisableTorchFunction
_default_dtype = float32


def get_default_dtype():
    return _default_dtype


def manual_seed(seed):
    _C.default_generator.manual_seed(seed)
    cuda.manual_seed(seed)


def use_deterministic_algorithms(mode):
    _C._set_deterministic_algorithms(mode)


from torch import autograd, cuda, nn, utils  # noqa: E402, F401
