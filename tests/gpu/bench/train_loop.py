#!/usr/bin/env python3
"""One program of train_programs.py in a process of its own. Knows nothing of Grape. Prints one JSON line at the end.

train_loop.py PROGRAM [--steps N] [--how plain|graph|compile] [--small] [--busy]     serve
train_loop.py PROGRAM --check [--steps N]                                            check

serve: each line on standard input is one block of N steps between two synchronisations, answered by its milliseconds a
step. check: N steps with deterministic algorithms; checksums of the loss and of all gradients in each step, and of the
weights, the buffers, the optimizer's state and random numbers that are drawn afterwards.
"""

import argparse
import json
import random
import sys
import time
from typing import Any

import paths  # noqa: F401
import torch

import train_programs


def serve(options: argparse.Namespace) -> dict[str, Any]:
    from speed import busy_or_none, device_memory  # noqa: PLC0415

    begin = time.perf_counter()
    program = train_programs.make(options.program, how=options.how, small=options.small)
    built = time.perf_counter() - begin

    def block() -> list[torch.Tensor]:
        # The next step of a compiled model overwrites its loss: there is nothing to keep.
        losses = [program.step() for _ in range(options.steps)]
        return [] if options.how == "compile" else losses

    times, peaks = [], []
    for _ in sys.stdin:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        block()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1000 / options.steps)
        peaks.append(torch.cuda.max_memory_allocated() / 2**20)
        print(times[-1], flush=True)
    busy = {"busy_ms": busy_or_none(block, options.steps)} if options.busy else {}
    return {"built_s": built, "blocks_ms": times, "peaks_mib": peaks, **device_memory(), **busy}


def drawn_afterwards() -> dict[str, torch.Tensor]:
    import numpy  # noqa: PLC0415

    host = [random.random(), float(numpy.random.rand())]  # noqa: NPY002
    return {"CPU": torch.rand(16), "GPU": torch.rand(16, device="cuda"), "Python and NumPy": torch.tensor(host, dtype=torch.float64)}


def numbers(tensors: dict[str, torch.Tensor]) -> dict[str, int]:
    return {name: int(number) for name, number in train_programs.checksums(tensors)}


def check(options: argparse.Namespace) -> dict[str, Any]:
    program = train_programs.make(options.program, deterministic=True, small=options.small)
    steps: list[dict[str, torch.Tensor]] = []

    def look(loss: torch.Tensor) -> None:
        found = dict(train_programs.checksums(program.gradients()))
        together = torch.stack([number * (2 * place + 1) for place, number in enumerate(found.values())]).sum()
        steps.append({"losses": dict(train_programs.checksums({"loss": loss}))["loss"], "gradients": together,
                      "count": torch.tensor(len(found))})  # fmt: skip

    program.look = look
    for _ in range(options.steps):
        last = program.step()
    state = {kind: numbers(tensors) for kind, tensors in program.state().items() if kind != "gradients"}
    return {
        "steps": [[int(step[kind]) for kind in ("losses", "gradients", "count")] for step in steps],
        "last_loss": last.item(),
        "state": {**state, "drawn afterwards": numbers(drawn_afterwards())},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=sorted(train_programs.PROGRAMS))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--how", choices=["plain", "graph", "compile"], default="plain")
    parser.add_argument("--small", action="store_true", help="tiny models, to try it without a GPU")
    parser.add_argument("--busy", action="store_true", help="the GPU's time for a step, too")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    print(json.dumps(check(options) if options.check else serve(options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
