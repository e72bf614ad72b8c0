#!/usr/bin/env python3
"""Runs a script with every PyTorch operator on the device passing through Python, and writes down the Python stack at
each: the lines that the launches of a trace of this very process must carry.

    dispatched.py RESULT.json SCRIPT [ARGUMENT...]

Unlike a profiler's, these stacks hold the current line of every frame, also where an operator such as `x + y` issued
the launch. RESULT.json: `stacks`, a list of stacks (innermost first, each frame [file, qualified name, line]), and
`operators`, the stack's index for each operator in the order of issue. A launch has a few frames more inside: those of
this file's `__torch_dispatch__` and of what it calls.
"""

import argparse
import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Optional

import torch
from profiled import run_script
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Stack = tuple[tuple[str, str, int], ...]


def stack_of(frame: Optional[FrameType]) -> Stack:
    frames = []
    while frame is not None:
        code = frame.f_code
        frames.append((code.co_filename, getattr(code, "co_qualname", code.co_name), frame.f_lineno or 0))
        frame = frame.f_back
    return tuple(frames)


def on_device(values: Any) -> bool:
    return any(isinstance(value, torch.Tensor) and value.is_cuda for value in tree_leaves(values))


class StackRecorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.stacks: dict[Stack, int] = {}
        self.operators: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        stack = stack_of(sys._getframe().f_back)
        result = func(*args, **(kwargs or {}))
        if on_device((args, kwargs, result)):
            self.operators.append(self.stacks.setdefault(stack, len(self.stacks)))
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    recorder = StackRecorder()
    with recorder:
        run_script(options.script, options.arguments)
    options.result.write_text(json.dumps({"stacks": list(recorder.stacks), "operators": recorder.operators}))


if __name__ == "__main__":
    main()
