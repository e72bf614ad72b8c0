"""What the cases of replay_cases.py have in common: the list of them, a small model, its input."""

from typing import Any, Callable, Iterator

import torch
from torch import nn

CALLS = 12
CASES: dict[str, Callable[[], Iterator[Any]]] = {}


def case(function: Callable[[], Iterator[Any]]) -> Callable[[], Iterator[Any]]:
    CASES[function.__name__] = function
    return function


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 64)
        self.flag, self.count, self.scale = False, 0, 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def net(kind: type = Net) -> Any:
    torch.manual_seed(1)
    return kind().cuda().eval()


def data(seed: int = 2) -> torch.Tensor:
    return torch.randn(4, 64, generator=torch.Generator().manual_seed(seed)).cuda()
