"""Ends of a process with CUDA work to the last: in `atexit`, in objects freed at interpreter shutdown, and `os._exit`
with work pending (row 20). Arguments: `shutdown` or `now`."""

import atexit
import os
import sys
from typing import Any, Callable

import torch


class LastWork:
    """Launches when it is collected, which for a module's global is while the interpreter shuts down."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __del__(self, write: Callable[[int, bytes], int] = os.write) -> None:  # `os` is gone by then
        self.tensor.add_(1)
        write(1, f"freed at {self.tensor.sum().item():.0f}\n".encode())


def at_exit(tensor: torch.Tensor) -> None:
    print(f"atexit {(tensor * 2).sum().item():.0f}", flush=True)


data = torch.ones(100, device="cuda")
print(f"sum {(data + 1).sum().item():.0f}", flush=True)
if sys.argv[1] == "now":
    data.mul_(2)
    os._exit(7)
last_work = LastWork(torch.zeros(10, device="cuda"))
atexit.register(at_exit, data)
sys.exit(3)
