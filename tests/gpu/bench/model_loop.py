#!/usr/bin/env python3
"""One model of model_zoo.py in a plain loop, as a user's script has it. Knows nothing of Grape.

model_loop.py NAME [--calls N] [--device cuda|cpu]

The first call is made at once. Then one line on standard input is answered by the milliseconds of the first call, the
next one by those of the N - 1 others, each on its own between two synchronisations; the inputs' values are new in every
call. At the input's end comes one JSON line: the milliseconds and a digest of all outputs of every call, or the error.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, Optional

import torch

from model_zoo import Script, inputs_of, prepare, scripts, why_missing


class Digest:
    """Types, shapes, strides and bytes of all tensors that can be reached from a call's result."""

    def __init__(self, value: Any) -> None:
        self.hash, self.tensors, self.finite = hashlib.sha256(), 0, True
        self.open: set[int] = set()
        self.add(value)

    def add(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self.add_tensor(value)
        elif isinstance(value, Mapping):
            for key in value:
                self.hash.update(str(key).encode())
                self.add(value[key])
        elif isinstance(value, (list, tuple)):
            for part in value:
                self.add(part)
        elif hasattr(value, "__dict__") and not isinstance(value, type) and id(value) not in self.open:
            # A cache of keys and values, for one.
            self.open.add(id(value))
            self.add(vars(value))
        elif isinstance(value, (int, float, str, type(None))):
            self.hash.update(repr(value).encode())

    def add_tensor(self, tensor: torch.Tensor) -> None:
        self.tensors += 1
        self.hash.update(str((tensor.dtype, tuple(tensor.shape), tensor.stride())).encode())
        host = tensor.detach().cpu().contiguous()
        if host.numel():
            self.hash.update(host.reshape(-1).view(torch.uint8).numpy().tobytes())
        if host.is_floating_point():
            self.finite = self.finite and not bool(host.isnan().any())

    def text(self) -> str:
        return self.hash.hexdigest()[:16]


class Loop:
    def __init__(self, script: Script, device: str) -> None:
        self.script, self.device = script, device
        self.times: list[float] = []
        self.digests: list[str] = []
        self.finite, self.tensors = True, 0
        self.model: Any = None
        self.error: Optional[str] = None

    def build(self) -> None:
        try:
            self.model = prepare(self.script, self.device)
        except Exception as problem:  # whatever a library raises is told in the table
            self.error = why_missing(problem) or f"build: {problem!r}"

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def step(self) -> None:
        inputs = inputs_of(self.script, len(self.times), self.device)
        self.synchronize()
        begin = time.perf_counter()
        output = self.script.call(self.model, inputs)
        self.synchronize()
        self.times.append((time.perf_counter() - begin) * 1000)
        digest = Digest(output)
        self.digests.append(digest.text())
        self.finite, self.tensors = self.finite and digest.finite, digest.tensors

    def run(self, calls: int) -> float:
        """The milliseconds that they took. After an error nothing runs."""
        done = len(self.times)
        try:
            while self.error is None and len(self.times) < done + calls:
                self.step()
        except Exception as problem:  # as above
            self.error = f"call {len(self.times)}: {problem!r}"
        return sum(self.times[done:])

    def result(self) -> dict[str, Any]:
        kind = type(self.model)
        return {
            "error": self.error,
            "region": f"{kind.__module__}:{kind.__qualname__}",
            "module_calls": self.script.module_calls,
            "ms": self.times,
            "digests": self.digests,
            "tensors": self.tensors,
            "finite": self.finite,
        }


def main() -> None:
    known = scripts()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=known)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    loop = Loop(known[options.name], options.device)
    with torch.no_grad():
        loop.build()
        taken = loop.run(1)
        for number, _ in enumerate(sys.stdin):
            if number == 1:
                taken = loop.run(options.calls - 1)
            print(taken, file=answers, flush=True)
    print(json.dumps(loop.result()), file=answers)


if __name__ == "__main__":
    main()
