"""What whole programs share: how they are listed, what a run gives them, and what is kept of it.

A program is a generator: it makes its models, and then yields once for each request or step, with what its user would look at.
Models come from their configurations, with random weights.
"""

import hashlib
import importlib.util
import random
from dataclasses import dataclass
from typing import Any, Callable, Iterator

import torch
from torch import nn

Program = Callable[["Run"], Iterator[Any]]


@dataclass(frozen=True)
class Listed:
    name: str
    program: Program
    needs: tuple[str, ...]  # libraries besides torch
    units: int  # requests or steps, with the first one
    what: str

    def missing(self) -> list[str]:
        return [library for library in self.needs if importlib.util.find_spec(library) is None]


PROGRAMS: dict[str, Listed] = {}


def listed(*needs: str, units: int) -> Callable[[Program], Program]:
    def add(program: Program) -> Program:
        name = program.__name__
        assert name not in PROGRAMS and program.__doc__, name
        PROGRAMS[name] = Listed(name, program, needs, units, program.__doc__.split("\n")[0])
        return program

    return add


class Run:
    """One run of a program. `small`: a few tiny layers, to try it without a GPU."""

    def __init__(self, small: bool) -> None:
        self.small = small
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.choice = random.Random(1)
        self.data = torch.Generator().manual_seed(2)
        random.seed(3)
        torch.manual_seed(3)

    def size(self, usual: int, small: int) -> int:
        return small if self.small else usual

    def put(self, model: nn.Module, train: bool = False) -> Any:
        return model.to(self.device).train(train)

    def randn(self, *sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, generator=self.data).to(self.device, non_blocking=True)

    def tokens(self, *sizes: int, below: int = 1000) -> torch.Tensor:
        return torch.randint(4, below, sizes, generator=self.data).to(self.device)

    def length(self, low: int = 10, high: int = 100) -> int:
        """Of a request, at random."""
        return self.choice.randint(low, high if not self.small else low + 6)


def into(digest: Any, value: Any) -> None:
    """Adds all that a result holds, in its order."""
    if isinstance(value, torch.Tensor):
        data = value.detach().cpu().contiguous()
        digest.update(f"{data.dtype} {tuple(data.shape)} ".encode())
        digest.update(data.reshape(-1).view(torch.uint8).numpy().tobytes() if data.numel() else b"")
    elif isinstance(value, dict):
        for key in value:
            digest.update(repr(key).encode())
            into(digest, value[key])
    elif isinstance(value, (list, tuple)):
        digest.update(str(len(value)).encode())
        for one in value:
            into(digest, one)
    else:
        digest.update(repr(value).encode())


def digest_of(value: Any) -> str:
    digest = hashlib.sha256()
    into(digest, value)
    return digest.hexdigest()[:16]
