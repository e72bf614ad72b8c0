"""What the training programs share: their list, and a Run, which makes their inputs and records what they see."""

import contextlib
import dataclasses
import hashlib
import importlib.util
import os
import random
import re
from typing import Any, Callable, Iterator, Optional

import torch
from torch import nn

STEPS = 24
PROGRAMS: dict[str, "Program"] = {}


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    function: Callable[["Run"], None]
    libraries: tuple[str, ...]
    tags: tuple[str, ...]
    gpu_only: str  # why the simulated driver cannot run it; empty: it can

    @property
    def about(self) -> str:
        return " ".join((self.function.__doc__ or "").split())

    def missing(self) -> list[str]:
        return [name for name in self.libraries if importlib.util.find_spec(name) is None]


def program(*libraries: str, tags: str = "", gpu_only: str = "", name: str = "") -> Callable[[Any], Any]:
    """Registers a function that trains something. `libraries`: what it imports besides torch. `tags`: words."""

    def add(function: Any) -> Any:
        entry = name or function.__name__
        assert entry not in PROGRAMS, entry
        PROGRAMS[entry] = Program(entry, function, libraries, tuple(tags.split()), gpu_only)
        return function

    return add


def seed_everything(seed: int = 0) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    with contextlib.suppress(ImportError):
        import numpy

        numpy.random.seed(seed)


def digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def bytes_of(x: torch.Tensor) -> str:
    """A hash of a tensor's values. It changes neither the tensor nor its version."""
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        x = x.detach().resolve_conj().resolve_neg()
        x = (torch.view_as_real(x) if x.is_complex() else x).contiguous().cpu()
        return digest(x.reshape(-1).view(torch.uint8).numpy()) if x.numel() else "empty"


DEPTH = int(os.environ.get("SWEEP_GRAPH_DEPTH", "3"))  # of nodes that are compared by name


def graph_of(node: Any, depth: int = DEPTH) -> str:
    """The names of a backward node and of those behind it."""
    if node is None or depth == 0:
        return "" if node is None else node.name()
    behind = ",".join(f"{graph_of(edge, depth - 1)}:{number}" for edge, number in node.next_functions)
    return f"{node.name()}({behind})"


def state_of(x: torch.Tensor) -> str:
    """What a program can see of a tensor besides its values and its gradient."""
    words = [str(x.dtype), str(tuple(x.shape)), str(x.stride()), x.device.type]
    words += [name for name in ("requires_grad", "is_leaf", "retains_grad") if getattr(x, name)]
    words.append("inference" if x.is_inference() else f"version {x._version}")
    words.append("grad_fn " + (graph_of(x.grad_fn) or "None"))
    return " ".join(words)


class Run:
    """One run of one program. Each record is one step: labels of what was seen, and a hash or a text of each."""

    def __init__(self, device: str = "cuda", steps: int = STEPS) -> None:
        self.device = torch.device(device)
        self.count = steps
        self.records: list[dict[str, str]] = []
        self.now: dict[str, str] = {}
        self.data = torch.Generator().manual_seed(1)

    # Inputs: drawn by a generator of their own, so that what a program draws is its own affair.

    def put(self, model: nn.Module) -> Any:
        return model.to(self.device).train()

    def randn(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.data).to(self.device)

    def rand(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=self.data).to(self.device)

    def randint(self, most: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, most, shape, generator=self.data).to(self.device)

    # Steps and what is seen in them.

    def steps(self, count: Optional[int] = None) -> Iterator[int]:
        for step in range(count or self.count):
            yield step
            self.end_step()

    def end_step(self) -> None:
        self.now["random state of the CPU"] = bytes_of(torch.get_rng_state())
        self.now["random state of Python"] = digest(repr(random.getstate()).encode())
        if self.device.type == "cuda":
            self.now["random state of the GPU"] = bytes_of(torch.cuda.get_rng_state())
        self.records.append(self.now)
        self.now = {}

    def see(self, **values: Any) -> None:
        """Records values by their names. Called after the backward pass, before gradients are set to zero."""
        for name, value in values.items():
            self._see(name, value)

    def _see(self, name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._tensor(name, value)
        elif isinstance(value, nn.Module):
            self._module(name, value)
        elif isinstance(value, torch.optim.Optimizer):
            self._optimizer(name, value)
        elif isinstance(value, dict) or hasattr(value, "to_tuple"):
            for key, item in value.items():
                self._see(f"{name}[{key}]", item)
        elif isinstance(value, (list, tuple)):
            for key, item in enumerate(value):
                self._see(f"{name}[{key}]", item)
        elif isinstance(value, BaseException):
            self.now[f"exception {name}"] = text_of(value)
        elif hasattr(value, "state_dict"):
            self._see(name, value.state_dict())
        else:
            plain = value is None or isinstance(value, (bool, int, float, str, torch.dtype))
            self.now[name] = repr(value) if plain else type(value).__qualname__

    def _tensor(self, name: str, x: torch.Tensor, what: str = "value") -> None:
        self.now[f"state of {name}"] = state_of(x)
        if x.layout != torch.strided:
            x = x.detach().coalesce()
            self.now[f"indices of {name}"] = bytes_of(x.indices())
            x = x.values()
        self.now[f"{what} of {name}"] = bytes_of(x)
        if x.is_leaf or x.retains_grad:
            self._gradient(name, x)

    def _gradient(self, name: str, x: torch.Tensor) -> None:
        if x.grad is None:
            self.now[f"gradient of {name}"] = "None"
        else:
            self._tensor(f"the gradient of {name}", x.grad)

    def _module(self, name: str, module: nn.Module) -> None:
        self.now[f"modes of {name}"] = digest(repr([part.training for part in module.modules()]).encode())
        for label, parameter in module.named_parameters():
            self._gradient(f"{name}.{label}", parameter)
        for label, buffer in module.named_buffers():
            self._tensor(f"{name}.{label}", buffer, "buffer")
        for label, parameter in module.named_parameters():
            self.now[f"state of {name}.{label}"] = state_of(parameter)
            self.now[f"weight {name}.{label}"] = bytes_of(parameter)

    def _optimizer(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        number = 0
        for group in optimizer.param_groups:
            self._see(f"{name} group", {key: item for key, item in group.items() if key != "params"})
            for parameter in group["params"]:
                self._see(f"{name} state {number}", dict(optimizer.state.get(parameter, {})))
                number += 1

    @contextlib.contextmanager
    def expect_error(self, name: str) -> Iterator[None]:
        """An exception in the block is part of the program: its type and text are recorded."""
        try:
            yield
            self.now[f"exception {name}"] = "none"
        except Exception as error:  # noqa: BLE001: whatever the program raises is compared
            self.see(**{name: error})

    def finish(self) -> None:
        """Random numbers that are drawn after the program are a record of their own."""
        drawn = {"CPU": torch.rand(8), "device": torch.rand(8, device=self.device), "Python": random.random()}
        self.see(drawn_afterwards=drawn)
        self.end_step()


def text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(re.sub('0x[0-9a-f]+', '0x', str(error)).split())[:300]}"


# Loops that many programs share.


def train(
    run: Run,
    model: nn.Module,
    batch: Callable[[], tuple[Any, ...]],
    loss_of: Callable[..., torch.Tensor],
    optimizer: Optional[torch.optim.Optimizer] = None,
    steps: Optional[int] = None,
) -> None:
    """`loss_of(model, *batch)` is a loss, or a loss and what else is to be seen. Three batches come in turn."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    batches = [batch() for _ in range(3)]
    for step in run.steps(steps):
        optimizer.zero_grad()
        loss, *more = as_tuple(loss_of(model, *batches[step % 3]))
        loss.backward()
        run.see(loss=loss, outputs=more)
        optimizer.step()
        run.see(model=model, optimizer=optimizer)


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
