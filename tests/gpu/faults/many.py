"""A program that does the same again and again, and how much memory it has taken (row 30).

many.py shapes FILE     a small model, 3,000 shapes, each in eight rounds
many.py launches FILE   a model of 200 kernels, called until ten million of them ran

Prints digests. FILE gets JSON: MiB on the device (in PyTorch's blocks, and outside of its allocator: of all processes there
are) and resident on the host, when all that may be kept has been seen (`warm`) and at the end.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

SHAPES, ROUNDS, WARM_ROUNDS = 3000, 8, 5
KERNELS, LAUNCHES = 200, 10_000_000


def memory() -> dict[str, float]:
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    outside = total - free - torch.cuda.memory_reserved()
    sizes = {"allocated": torch.cuda.memory_allocated(), "outside": outside, "host": resident}
    return {name: size / 2**20 for name, size in sizes.items()}


def digest(tensors: list[torch.Tensor]) -> str:
    together = hashlib.sha256()
    for tensor in tensors:
        together.update(tensor.cpu().numpy().tobytes())
    return together.hexdigest()[:24]


def many_shapes() -> dict[str, dict[str, float]]:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)).cuda().eval()
    found = {}
    for number in range(ROUNDS):
        data = torch.randn(SHAPES, 16).cuda()
        if number == WARM_ROUNDS:
            found["warm"] = memory()
        print(f"round {number}: {digest([model(data[:length]).sum(0) for length in range(1, SHAPES + 1)])}", flush=True)
    return found


class Long(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(KERNELS // 2):
            x = x * 3 + 1  # integers wrap around: no step is lost in another
        return x


def many_launches() -> dict[str, dict[str, float]]:
    model, x = Long(), torch.arange(64).cuda()
    found = {}
    for number in range(LAUNCHES // KERNELS):
        x = model(x)
        if number * KERNELS % (LAUNCHES // 10) == 0:
            print(f"launch {number * KERNELS}: {digest([x])}", flush=True)
            found.setdefault("warm" if number else "begin", memory())
    print(f"end: {digest([x])}")
    return found


def main() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        found = {"shapes": many_shapes, "launches": many_launches}[sys.argv[1]]()
    Path(sys.argv[2]).write_text(json.dumps({**found, "end": memory()}))


if __name__ == "__main__":
    main()
