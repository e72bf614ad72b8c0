"""Comparing a trace with what others saw of the same process: torch.profiler, and stacks taken in Python."""

import json
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from gpu_machine import Build

Frame = tuple[str, str, int]  # file, qualified name, current line


def plain_name(name: str) -> str:
    """A kernel's name without spaces, in which demanglers differ (`> >` and `>>`)."""
    return "".join(name.split())


@dataclass
class Launch:
    kernel: str
    frame: int
    thread: int
    stream: str
    captured: bool
    result: int
    first_word: int
    region: int


@dataclass
class Trace:
    """A trace as trace_events prints it."""

    path: Path
    data: dict[str, Any]
    aliases: dict[str, str] = field(default_factory=dict)  # any spelling of a kernel's name -> the one compared

    def __post_init__(self) -> None:
        for mangled, demangled in self.data["functions"]:
            self.aliases[plain_name(mangled)] = plain_name(demangled)

    def kernel_name(self, function: int) -> str:
        return plain_name(self.data["functions"][function][1])

    def executed(self) -> Counter:
        """Kernel name -> runs: direct launches and kernels of graph launches."""
        counts: Counter = Counter()
        for kind in ("direct", "replayed"):
            for function, count in self.data[kind].items():
                counts[self.kernel_name(int(function))] += count
        return counts

    def launches(self) -> list[Launch]:
        return [
            Launch(self.kernel_name(row[0]), row[1], row[2], row[3], bool(row[4]), row[5], row[6], row[7])
            for row in self.data["launches"]
        ]

    def stack(self, frame: int) -> list[Frame]:
        """Innermost first."""
        frames: list[Frame] = []
        while frame != 0 and len(frames) < 10000:
            parent, code, line = self.data["frames"][frame]
            file, qualname, _ = self.data["codes"][code]
            frames.append((file, qualname, line))
            frame = parent
        return frames


def read_trace(build: Build, path: Path) -> tuple[Optional[Trace], str]:
    """The trace, or None and the reason."""
    if build.trace_events is None:
        return None, "trace_events could not be built"
    if not path.exists():
        return None, "no trace was written"
    try:
        done = subprocess.run([str(build.trace_events), str(path)], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return None, "trace_events took longer than 120 s"
    if done.returncode != 0:
        return None, done.stderr.strip() or f"trace_events ended with status {done.returncode}"
    return Trace(path, json.loads(done.stdout, strict=False)), ""


def kernel_differences(trace: Trace, profiler_kernels: dict[str, int]) -> list[dict[str, Any]]:
    """Kernels that the trace and the profiler count differently; empty means equal, name by name."""
    expected: Counter = Counter()
    for name, count in profiler_kernels.items():
        key = plain_name(name)
        expected[trace.aliases.get(key, key)] += count
    counted = trace.executed()
    return [
        {"kernel": name, "trace": counted[name], "profiler": expected[name]}
        for name in sorted(set(expected) | set(counted))
        if counted[name] != expected[name]
    ]


def _same_file(a: str, b: str) -> bool:
    return a == b or a.endswith("/" + b.lstrip("/")) or b.endswith("/" + a.lstrip("/"))


@dataclass
class Agreement:
    """How many launches carry the right position. `wrong` holds the first few that do not."""

    compared: int = 0
    agreed: int = 0
    unknown: int = 0  # the other side has no position for it
    wrong: list[dict[str, Any]] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.agreed / self.compared if self.compared else 0.0

    def add(self, right: bool, **details: Any) -> None:
        self.compared += 1
        self.agreed += right
        if not right and len(self.wrong) < 20:
            self.wrong.append(details)

    def summary(self) -> dict[str, Any]:
        return {
            "compared": self.compared,
            "agreed": self.agreed,
            "unknown": self.unknown,
            "share": round(self.share, 5),
            "wrong": self.wrong,
        }


def compare_with_profiler(trace: Trace, launches: list[dict[str, Any]]) -> tuple[Agreement, Agreement]:
    """The innermost Python frame of the k-th launch, in the trace and in the profiler's stacks of the same process.

    First: file and function, for every launch. Second: the line too, for launches whose line the profiler knows. The
    kernels of both sides must be the same in the same order; where the k-th differs, the launch counts as wrong.
    """
    functions, lines = Agreement(), Agreement()
    recorded = [launch for launch in trace.launches() if not launch.captured and launch.result == 0]
    for index, expected in enumerate(launches):
        if "file" not in expected:
            functions.unknown += 1
            continue
        key = plain_name(expected["kernel"])
        launch = recorded[index] if index < len(recorded) else None
        same_kernel = launch is not None and launch.kernel == trace.aliases.get(key, key)
        stack = trace.stack(launch.frame)[:1] if launch is not None else []
        file, qualname, line = stack[0] if stack else ("", "", 0)
        same_function = (
            same_kernel
            and _same_file(file, expected["file"])
            and qualname.rsplit(".", 1)[-1] == expected["function"].rsplit(".", 1)[-1]
        )
        details = {
            "index": index,
            "profiler": expected,
            "trace": [launch.kernel if launch else "", file, qualname, line],
        }
        functions.add(same_function, **details)
        if expected.get("line"):
            lines.add(same_function and line == expected["line"], **details)
        else:
            lines.unknown += 1
    return functions, lines


def compare_with_dispatch(trace: Trace, recorded: dict[str, Any], window: int = 256) -> Agreement:
    """Whole Python stacks, line by line: each launch made under `dispatched.py` against those taken at the operators.

    An operator makes any number of launches, so the k-th launch must carry the stack of the same operator as the
    launch before it, or of one of the next few.
    """
    agreement = Agreement()
    stacks = [[(f[0], f[1], f[2]) for f in stack] for stack in recorded["stacks"]]
    operators = recorded["operators"]
    position = 0
    known: dict[int, Optional[list[Frame]]] = {}
    for index, launch in enumerate(trace.launches()):
        if launch.frame not in known:
            known[launch.frame] = _above_dispatch(trace.stack(launch.frame))
        stack = known[launch.frame]
        if stack is None:  # issued outside any operator
            agreement.unknown += 1
            continue
        for candidate in range(position, min(position + window, len(operators))):
            if stacks[operators[candidate]] == stack:
                position = candidate
                agreement.add(True)
                break
        else:
            nearest = stacks[operators[min(position, len(operators) - 1)]][:3] if operators else []
            agreement.add(False, index=index, kernel=launch.kernel, trace=stack[:3], python=nearest)
    return agreement


def _above_dispatch(stack: list[Frame]) -> Optional[list[Frame]]:
    for index, (file, qualname, _) in enumerate(stack):
        if qualname == "StackRecorder.__torch_dispatch__" and file.endswith("dispatched.py"):
            return stack[index + 1 :]
    return None
