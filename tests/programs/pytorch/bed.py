"""What the cases have in common: the list of them, what is seen of a program, small models and inputs."""

import contextlib
import copy
import dataclasses
import enum
import hashlib
import os
import random
import types
from typing import Any, Callable

import torch
from torch import nn
from torch.nn import functional as F

CASES: dict[str, "Entry"] = {}
DEVICE = "cuda"
PHASES = (0, 1, 3, 7)  # before any call, between the observed ones, right after the proof, during replays
CALLS = 13


class Skip(Exception):
    pass


@dataclasses.dataclass
class Entry:
    function: Callable[["Run"], None]
    risk: str
    mode: str
    late: bool
    gpu_only: str


def case(risk: str, mode: str = "no_grad", late: bool = False, gpu_only: str = "") -> Callable[[Any], Any]:
    """`late`: may end the process, or leave it in another state: after all others. `gpu_only`: why the simulated driver
    cannot run it at all."""

    def add(function: Any) -> Any:
        assert function.__name__ not in CASES, function.__name__
        CASES[function.__name__] = Entry(function, risk, mode, late, gpu_only)
        return function

    return add


class Write:
    """All that a program can see of a value, without addresses."""

    def __init__(self) -> None:
        self.hash, self.ids, self.kept, self.storages = hashlib.sha256(), {}, [], {}

    def text(self, *parts: Any) -> None:
        self.hash.update(("|".join(map(str, parts)) + "\n").encode())

    def again(self, value: Any) -> bool:
        if id(value) in self.ids:
            self.text("again", self.ids[id(value)])
            return True
        self.ids[id(value)] = len(self.ids)
        self.kept.append(value)
        return False

    def value(self, value: Any) -> None:
        if value is None or isinstance(value, (bool, str, bytes, torch.dtype, torch.device, torch.layout, range)):
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
        elif self.again(value):
            return
        elif isinstance(value, dict):
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
            for name, item in list(value.named_parameters()) + list(value.named_buffers()):
                self.text(name)
                self.value(item)
        elif hasattr(value, "__dict__"):
            self.text("object", type(value).__name__)
            for name, item in vars(value).items():
                self.text(name)
                self.value(item)
        else:
            self.text(type(value).__name__, repr(value) if "0x" not in repr(value) else "?")

    def tensor(self, x: torch.Tensor) -> None:
        if self.again(x):
            return
        nested = x.layout == torch.jagged or x.is_nested
        self.text("tensor", type(x).__name__, x.dtype, "nested" if nested else tuple(x.shape), x.device.type, x.layout)
        self.text(x.requires_grad, x.is_leaf, x.is_inference(), sorted(vars(x).items()) if vars(x) else "")
        self.text(None if x.is_inference() else x._version)
        with torch.no_grad(), torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
            if nested:
                for part in x.unbind():
                    self.bytes(part)
                return
            if x.layout != torch.strided:
                sparse = x.to_sparse_coo().coalesce() if x.layout != torch.sparse_coo else x.coalesce()
                self.bytes(sparse.indices())
                self.bytes(sparse.values())
                return
            storage = x.untyped_storage()
            number = self.storages.setdefault(storage.data_ptr(), len(self.storages)) if storage.nbytes() else "empty"
            self.text(x.stride(), x.storage_offset(), number, storage.nbytes(), x.is_conj(), x.is_neg())
            self.bytes(x)

    def bytes(self, x: torch.Tensor) -> None:
        x = x.detach().resolve_conj().resolve_neg()
        if x.is_complex():
            x = torch.view_as_real(x)
        x = x.contiguous().cpu()
        if x.numel():
            self.hash.update(x.reshape(-1).view(torch.uint8).numpy().tobytes())


def brief(value: Any) -> str:
    """For people."""
    try:
        if isinstance(value, torch.Tensor):
            if value.is_nested or value.layout != torch.strided or value.is_complex() or not value.numel():
                return f"{tuple(value.shape)}" if not value.is_nested else "nested"
            flat = value.detach().reshape(-1).double()
            return f"{tuple(value.shape)} {float(flat[0]):.6g} .. sum {float(flat.sum()):.9g}"
        if isinstance(value, (list, tuple)) and len(value) <= 4:
            return "(" + ", ".join(brief(part) for part in value) + ")"
        text = repr(value)
        return text[:80] if "0x" not in text else type(value).__name__
    except Exception as error:  # noqa: BLE001
        return type(error).__name__


def random_states() -> str:
    import numpy

    hash_ = hashlib.sha256(repr(random.getstate()).encode())
    hash_.update(repr(numpy.random.get_state(legacy=False)["state"]["pos"]).encode())
    hash_.update(numpy.random.get_state(legacy=False)["state"]["key"].tobytes())
    hash_.update(torch.get_rng_state().numpy().tobytes())
    if DEVICE == "cuda":
        hash_.update(torch.cuda.get_rng_state().numpy().tobytes())
    return hash_.hexdigest()[:12]


class Run:
    """One case while it runs."""

    def __init__(self, name: str) -> None:
        self.name, self.calls, self.pending = name, [], []

    @property
    def cuda(self) -> bool:
        return DEVICE == "cuda"

    def see(self, *values: Any, label: str = "") -> None:
        """What the program observes now: waits for the device."""
        write = Write()
        write.value(list(values))
        self.calls.append([label, write.hash.hexdigest()[:16], random_states(), " ; ".join(map(brief, values))[:160]])

    def later(self, *values: Any, label: str = "") -> None:
        """Copied on the device now, looked at in the end: no wait in between."""
        copies = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in values]
        self.pending.append((label, copies))

    def flush(self) -> None:
        for label, values in self.pending:
            self.see(*values, label=label)
        self.pending.clear()

    def attempt(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Sees the result, or what was raised."""
        try:
            result = function(*arguments, **keywords)
        except Exception as error:  # noqa: BLE001
            self.see("raised", type(error).__name__, str(error).split("\n")[0][:200])
            return None
        self.see("returned", result)
        return result

    def need_cuda(self, why: str = "needs a GPU") -> None:
        if not self.cuda:
            raise Skip(why)

    # A few things of torch.cuda that the CPU has not, for a look at the case's logic there.
    def stream(self) -> Any:
        return torch.cuda.Stream() if self.cuda else FakeStream()

    def on(self, stream: Any) -> Any:
        return on_stream(stream)

    def current(self) -> Any:
        return current_stream()

    def event(self) -> Any:
        return torch.cuda.Event() if self.cuda else FakeStream()

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def empty_cache(self) -> None:
        if self.cuda:
            torch.cuda.empty_cache()

    def autocast(self, dtype: torch.dtype = torch.bfloat16, **more: Any) -> Any:
        return torch.autocast(DEVICE, dtype=dtype, **more)

    def seed(self, number: int) -> None:
        torch.manual_seed(number)


class FakeStream:
    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class Net(nn.Module):
    """Enough kernels for a replay to pay."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(width, 128), nn.Linear(128, 128), nn.Linear(128, width)
        self.norm = nn.LayerNorm(width)
        self.flag, self.count, self.scale = False, 0, 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.gelu(self.first(self.norm(x)))
        h = torch.tanh(self.second(h)) + h
        return x + self.third(h)


def net(kind: Any = Net, *arguments: Any, seed: int = 1, dtype: torch.dtype = torch.float32, **keywords: Any) -> Any:
    torch.manual_seed(seed)
    return kind(*arguments, **keywords).to(DEVICE, dtype).eval()


def data(i: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator("cpu").manual_seed(1000 + i)
    return torch.randn(*(shape or (4, 64)), generator=generator, device="cpu").to(DEVICE, dtype)


def ints(i: int, high: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator("cpu").manual_seed(2000 + i)
    return torch.randint(0, high, shape or (4,), generator=generator, device="cpu").to(DEVICE)


def changed_at(
    run: Run,
    make: Callable[[], Any],
    change: Callable[[Any], Any],
    call: Any = None,
    calls: int = CALLS,
    phases: Any = PHASES,
) -> None:
    """The same program with the change at each of the phases; and once more, four calls later."""
    call = call or (lambda model, i: model(data(i)))
    for phase in phases:
        model = make()
        for i in range(calls):
            if i in (phase, phase + 4):
                change(model)
            run.see(call(model, i), label=f"change before call {phase}, call {i}")


@contextlib.contextmanager
def restored():
    """Switches of torch as they were."""
    backends = torch.backends
    kept = [
        (backends.cuda.matmul, "allow_tf32"),
        (backends.cudnn, "allow_tf32"),
        (backends.cudnn, "enabled"),
        (backends.cudnn, "benchmark"),
        (backends.cudnn, "deterministic"),
        (backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
        (backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    ]
    values = [getattr(holder, name) for holder, name in kept]
    environment = dict(os.environ)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.use_deterministic_algorithms(False)
        for (holder, name), value in zip(kept, values):
            with contextlib.suppress(Exception):
                setattr(holder, name, value)
        for switch in ("flash", "mem_efficient", "math", "cudnn"):
            getattr(backends.cuda, f"enable_{switch}_sdp")(True)
        torch.set_grad_enabled(True)
        os.environ.clear()
        os.environ.update(environment)


__all__ = [
    "F",
    "CALLS",
    "PHASES",
    "Net",
    "Run",
    "Skip",
    "case",
    "changed_at",
    "copy",
    "data",
    "ints",
    "net",
    "nn",
    "torch",
]


def device() -> str:
    return DEVICE


# For use inside of forward: streams as numbers, since a stream object is opaque to a guard.
def numbers_of(stream: Any) -> tuple:
    return (stream.stream_id, stream.device_index, stream.device_type) if DEVICE == "cuda" else (0, 0, 0)


def stream_of(numbers: tuple) -> Any:
    if DEVICE != "cuda":
        return FakeStream()
    return torch.cuda.Stream(stream_id=numbers[0], device_index=numbers[1], device_type=numbers[2])


def on_stream(stream: Any) -> Any:
    return torch.cuda.stream(stream) if DEVICE == "cuda" else contextlib.nullcontext()


def current_stream() -> Any:
    return torch.cuda.current_stream() if DEVICE == "cuda" else FakeStream()


def devices_of_random() -> list:
    return [0] if DEVICE == "cuda" else []
