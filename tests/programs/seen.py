"""What a program can see of values, without addresses: as text, as a digest, and briefly for people."""

import dataclasses
import enum
import hashlib
import random
import types

import torch
from torch import nn

SIMULATED = hasattr(torch._C, "_operators_run")  # the PyTorch of tests/sim_torch, which knows little of tensors


class Write:
    """Takes values in turn; `hash` is over all that shows of them."""

    def __init__(self):
        self.hash, self.ids, self.kept, self.storages = hashlib.sha256(), {}, [], {}

    def text(self, *parts):
        self.hash.update(("|".join(map(str, parts)) + "\n").encode())

    def again(self, value):
        if id(value) in self.ids:
            self.text("again", self.ids[id(value)])
            return True
        self.ids[id(value)] = len(self.ids)
        self.kept.append(value)
        return False

    def value(self, value):
        if value is None or isinstance(value, (bool, str, bytes, torch.dtype, torch.device, range)):
            self.text(type(value).__name__, repr(value))
        elif type(value) is int:
            self.text("int", value)
        elif type(value) is float:
            self.text("float", value.hex())
        elif isinstance(value, torch.Tensor):
            self.tensor(value)
        elif isinstance(value, enum.Enum):
            self.text("enum", value.name)
        elif type(value).__module__ == "numpy":
            self.text("numpy", type(value).__name__, getattr(value, "dtype", ""), getattr(value, "shape", ""))
            self.hash.update(value.tobytes())
        elif isinstance(value, types.FunctionType):
            self.text("function", value.__qualname__)
        elif isinstance(value, type):
            self.text("class", value.__qualname__)
        elif isinstance(value, BaseException):
            self.text("exception", type(value).__name__, str(value)[:300])
        elif not self.again(value):
            self.parts(value)

    def parts(self, value):
        if isinstance(value, dict):
            self.text(type(value).__name__, len(value))
            for key, item in value.items():
                self.value(key)
                self.value(item)
        elif isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
            self.text(type(value).__name__, len(value))
            for item in value:
                self.value(item)
        elif isinstance(value, (set, frozenset)):
            self.text(type(value).__name__, sorted(map(repr, value)))
        elif isinstance(value, nn.Module):
            self.text("module", type(value).__name__, value.training)
            named = [] if SIMULATED else list(value.named_parameters()) + list(value.named_buffers())
            for name, item in named:
                self.text(name)
                self.value(item)
        elif hasattr(value, "__dict__"):
            self.text("object", type(value).__name__)
            for name, item in vars(value).items():
                self.text(name)
                self.value(item)
        else:
            self.text(type(value).__name__, repr(value) if "0x" not in repr(value) else "?")

    def tensor(self, x):
        if self.again(x):
            return
        self.text("tensor", type(x).__name__, x.dtype, x.requires_grad, x.is_inference())
        self.text(None if x.is_inference() else x._version)
        if SIMULATED:
            self.text(tuple(x.shape), x.stride())
            self.hash.update(bytes_of(x.detach()))
            return
        nested = x.layout == torch.jagged or x.is_nested
        self.text("nested" if nested else tuple(x.shape), x.device.type, x.layout, x.is_leaf)
        self.text(sorted(vars(x).items()) if vars(x) else "")
        with torch.no_grad(), torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
            if nested:
                for part in x.unbind():
                    self.hash.update(bytes_of(part))
            elif x.layout != torch.strided:
                sparse = x.to_sparse_coo().coalesce() if x.layout != torch.sparse_coo else x.coalesce()
                self.hash.update(bytes_of(sparse.indices()))
                self.hash.update(bytes_of(sparse.values()))
            else:
                self.strided(x)

    def strided(self, x):
        storage = x.untyped_storage()
        number = self.storages.setdefault(storage.data_ptr(), len(self.storages)) if storage.nbytes() else "empty"
        self.text(x.stride(), x.storage_offset(), number, storage.nbytes(), x.is_conj(), x.is_neg())
        self.hash.update(bytes_of(x))


def bytes_of(x):
    if SIMULATED:
        return x.tobytes()
    x = x.detach().resolve_conj().resolve_neg()
    if x.is_complex():
        x = torch.view_as_real(x)
    x = x.contiguous().cpu()
    return x.reshape(-1).view(torch.uint8).numpy().tobytes() if x.numel() else b""


def digest(*values):
    write = Write()
    write.value(list(values))
    return write.hash.hexdigest()[:16]


def brief(value):
    """For people. Runs no operator of the simulated PyTorch, which counts them."""
    try:
        if isinstance(value, torch.Tensor):
            if SIMULATED:
                return f"{value.dtype}{tuple(value.shape)} {hashlib.sha256(bytes_of(value.detach())).hexdigest()[:8]}"
            if value.is_nested or value.layout != torch.strided or value.is_complex() or not value.numel():
                return f"{tuple(value.shape)}" if not value.is_nested else "nested"
            flat = value.detach().reshape(-1).double()
            return f"{tuple(value.shape)} {float(flat[0]):.6g} .. sum {float(flat.sum()):.9g}"
        if isinstance(value, (list, tuple)) and len(value) <= 4:
            return "(" + ", ".join(brief(part) for part in value) + ")"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return type(value).__name__ + brief([getattr(value, field.name) for field in dataclasses.fields(value)])
        text = repr(value)
        return text[:80] if "0x" not in text else type(value).__name__
    except Exception as error:  # noqa: BLE001
        return type(error).__name__


def random_states(device):
    """Of all sources of random numbers. The simulated PyTorch has none on the host that a call could move."""
    if SIMULATED:
        return ""
    import numpy

    hash_ = hashlib.sha256(repr(random.getstate()).encode())
    hash_.update(repr(numpy.random.get_state(legacy=False)["state"]["pos"]).encode())
    hash_.update(numpy.random.get_state(legacy=False)["state"]["key"].tobytes())
    hash_.update(torch.get_rng_state().numpy().tobytes())
    if device == "cuda":
        for number in range(torch.cuda.device_count()):
            hash_.update(torch.cuda.get_rng_state(number).numpy().tobytes())
    return hash_.hexdigest()[:12]
