"""replay_loop.py CALLS [KIND]: calls a small module of the simulated PyTorch, with no argument but a tensor, or with one of
KIND beside it. For counts of instructions per replay (docs/BENCHMARKS.md)."""

import collections
import sys

import torch
from torch import nn

PAIRS = [(f"name{i}", i) for i in range(20)]
KINDS = {
    "none": lambda: None,
    "tuple": lambda: tuple(PAIRS),
    "list": lambda: [i for _, i in PAIRS],
    "dict": lambda: dict(PAIRS),
    "ordered": lambda: collections.OrderedDict(PAIRS),
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x, more):
        return self.second(torch.relu(self.first(x)))


def main():
    net, x, more = Net().cuda(), torch.zeros((4, 8), device="cuda"), KINDS[sys.argv[2] if len(sys.argv) > 2 else "none"]()
    with torch.no_grad():
        for _ in range(int(sys.argv[1])):
            net(x, more)


main()
