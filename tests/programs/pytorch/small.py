"""Small models and inputs of the cases for PyTorch, and how their cases are declared."""

import contextlib
import copy
from typing import Any, Callable

import bed
import torch
from bed import Run, Skip
from torch import nn
from torch.nn import functional as F

PHASES = (0, 1, 3, 7)  # before any call, between the observed ones, right after the proof, during replays
CALLS = 13


def case(risk: str, **options: Any) -> Callable[[Any], Any]:
    """A case that says what could go wrong in it."""
    return bed.case(risk=risk, **options)


def usual(body: Any) -> Any:
    """A case of the group "usual": a model in a loop as programs have it. A generator; its values are seen."""
    return bed.case(group="usual")(body)


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
    return kind(*arguments, **keywords).to(bed.DEVICE, dtype).eval()


def data(i: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator("cpu").manual_seed(1000 + i)
    return torch.randn(*(shape or (4, 64)), generator=generator, device="cpu").to(bed.DEVICE, dtype)


def ints(i: int, high: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator("cpu").manual_seed(2000 + i)
    return torch.randint(0, high, shape or (4,), generator=generator, device="cpu").to(bed.DEVICE)


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


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 64)
        self.flag, self.count, self.scale = False, 0, 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def two_layers(kind: type = TwoLayers) -> Any:
    torch.manual_seed(1)
    return kind().cuda().eval()


def rows(seed: int = 2) -> torch.Tensor:
    return torch.randn(4, 64, generator=torch.Generator().manual_seed(seed)).cuda()


# For use inside of forward: streams as numbers, since a stream object is opaque to a guard.
def numbers_of(stream: Any) -> tuple:
    return (stream.stream_id, stream.device_index, stream.device_type) if bed.DEVICE == "cuda" else (0, 0, 0)


def stream_of(numbers: tuple) -> Any:
    if bed.DEVICE != "cuda":
        return bed.FakeStream()
    return torch.cuda.Stream(stream_id=numbers[0], device_index=numbers[1], device_type=numbers[2])


def on_stream(stream: Any) -> Any:
    return torch.cuda.stream(stream) if bed.DEVICE == "cuda" else contextlib.nullcontext()


def current_stream() -> Any:
    return torch.cuda.current_stream() if bed.DEVICE == "cuda" else bed.FakeStream()


def devices_of_random() -> list:
    return [0] if bed.DEVICE == "cuda" else []


__all__ = [
    "F",
    "CALLS",
    "PHASES",
    "Net",
    "Run",
    "Skip",
    "TwoLayers",
    "case",
    "changed_at",
    "copy",
    "data",
    "ints",
    "net",
    "nn",
    "rows",
    "torch",
    "two_layers",
    "usual",
]
