"""The application crashes with launches pending: it keeps its own status (row 17).

Arguments: `segv` reads address 0; `abort` aborts; `device` makes the GPU fault, a Python exception and exit status 1.
"""

import ctypes
import os
import sys

import torch


def main() -> None:
    x = torch.ones(1000, device="cuda")
    for _ in range(100):
        x.mul_(1.01)
    print(f"sum {x.sum().item():.3f}", flush=True)
    for _ in range(100):
        x.mul_(1.01)
    kind = sys.argv[1]
    if kind == "segv":
        ctypes.string_at(0)
    elif kind == "abort":
        os.abort()
    elif kind == "device":
        x[torch.tensor([10**6], device="cuda")].sum().item()


if __name__ == "__main__":
    main()
