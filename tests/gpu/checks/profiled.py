#!/usr/bin/env python3
"""Runs a script under torch.profiler and writes which kernels ran: the reference for what a trace must hold.

    profiled.py [--stacks] RESULT.json SCRIPT [ARGUMENT...]

The profiler covers the whole script, from before its first CUDA call to after its last, so that its kernels are
those of the process. RESULT.json holds

    kernels   kernel name -> how often it ran, kernels of graph launches included
    launches  with --stacks: one entry for each kernel, in the order of issue: the kernel's name and the innermost
              Python frame that the profiler knows for it (file, function, first line, line or null).

The profiler sees Python's calls of Python and of C functions. Where a C function launched the kernel, it knows the
calling frame's current line. Where an operator (`x + y`) did, it knows the function only: its line is null.
"""

import argparse
import bisect
import json
import runpy
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Optional

import torch
from torch.profiler import ProfilerActivity, profile

LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver")


def run_script(path: str, arguments: list[str]) -> None:
    """Runs the script as `python path arguments` would."""
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    runpy.run_path(path, run_name="__main__")
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def chrome_events(profiler: profile) -> tuple[list[dict[str, Any]], int]:
    """The profiler's events as in its Chrome trace, and the nanoseconds that their `ts` counts from."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        # Names may hold bytes that are not UTF-8.
        trace = json.loads(path.read_text(encoding="utf-8", errors="replace"), strict=False)
    return trace["traceEvents"], int(trace.get("baseTimeNanoseconds", 0))


def python_frames(profiler: profile) -> dict[int, list[tuple[int, int, str, str, int, Optional[int]]]]:
    """By thread: (start ns, end ns, file, function, first line, line or None) for each call, in order of start."""
    frames: dict[int, list[tuple[int, int, str, str, int, Optional[int]]]] = {}
    stack = list(profiler.profiler.kineto_results.experimental_event_tree())
    while stack:
        event = stack.pop()
        stack.extend(event.children)
        kind = type(event.extra_fields).__name__
        if kind not in ("_ExtraFields_PyCall", "_ExtraFields_PyCCall"):
            continue
        start, end = event.start_time_ns, event.end_time_ns
        called = kind == "_ExtraFields_PyCall"
        # On entry of a function its current line is its first; a C function is named by the frame that called it.
        frame = event.extra_fields.callsite if called else event.extra_fields.caller
        line = None if called else frame.line_number
        first_line = frame.line_number if called else 0
        frames.setdefault(event.start_tid, []).append(
            (start, end, frame.file_name, frame.function_name, first_line, line)
        )
    for calls in frames.values():
        calls.sort(key=lambda call: (call[0], -call[1]))
    return frames


class InnermostCall:
    """Finds the innermost of nested calls at a time, by a flat list of the times where it changes."""

    def __init__(self, calls: list[tuple[int, int, str, str, int, Optional[int]]]) -> None:
        self.times: list[int] = []
        self.owners: list[int] = []
        self.calls = calls
        open_calls: list[int] = []
        for index, call in enumerate(calls):
            while open_calls and calls[open_calls[-1]][1] <= call[0]:
                closed = open_calls.pop()
                self._change(calls[closed][1], open_calls[-1] if open_calls else -1)
            open_calls.append(index)
            self._change(call[0], index)
        while open_calls:
            closed = open_calls.pop()
            self._change(calls[closed][1], open_calls[-1] if open_calls else -1)

    def _change(self, time: int, owner: int) -> None:
        self.times.append(max(time, self.times[-1] if self.times else time))
        self.owners.append(owner)

    def at(self, time: int) -> Optional[tuple[int, int, str, str, int, Optional[int]]]:
        position = bisect.bisect_right(self.times, time) - 1
        owner = self.owners[position] if position >= 0 else -1
        return self.calls[owner] if owner >= 0 else None


def launches_with_frames(profiler: profile, events: list[dict[str, Any]], base_ns: int) -> list[dict[str, Any]]:
    """Every kernel in the order of issue, with the innermost Python frame around the operator that issued it."""
    operators = {e["args"]["External id"]: e for e in events if e.get("cat") == "cpu_op" and "External id" in e["args"]}
    calls = {
        e["args"]["correlation"]: e
        for e in events
        if e.get("cat") in LAUNCH_CATEGORIES and "correlation" in e.get("args", {})
    }
    kernels = [e for e in events if e.get("cat") == "kernel"]
    kernels.sort(key=lambda e: (e["args"].get("correlation", 0), e["ts"]))
    threads = python_frames(profiler)
    frames = InnermostCall(max(threads.values(), key=len)) if threads else None
    result = []
    for kernel in kernels:
        # The operator's time is of the same clock as the Python calls'; the driver call's is CUPTI's.
        source = operators.get(kernel["args"].get("External id")) or calls.get(kernel["args"].get("correlation"))
        frame = None
        if source is not None and frames is not None:
            frame = frames.at(base_ns + round(source["ts"] * 1000))
        entry: dict[str, Any] = {"kernel": kernel["name"], "operator": source["name"] if source else None}
        if frame is not None:
            entry.update(file=frame[2], function=frame[3], first_line=frame[4], line=frame[5])
        result.append(entry)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stacks", action="store_true", help="record Python frames as well")
    parser.add_argument("result", type=Path)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    activities = [ProfilerActivity.CUDA]
    if options.stacks:
        activities.append(ProfilerActivity.CPU)
        # Imported before the profiler starts: the Python calls of the import would be most of its events.
        import transformers.models.gpt2.modeling_gpt2  # noqa: F401, PLC0415
    with profile(activities=activities, with_stack=options.stacks) as profiler:
        run_script(options.script, options.arguments)
    events, base_ns = chrome_events(profiler)
    result: dict[str, Any] = {"kernels": Counter(e["name"] for e in events if e.get("cat") == "kernel")}
    if options.stacks:
        result["launches"] = launches_with_frames(profiler, events, base_ns)
    options.result.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
