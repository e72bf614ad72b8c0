#!/usr/bin/env python3
"""Micro-benchmarks on the simulated driver: what a driver call costs without Grape, with it off, and recorded.

Usage: run_bench.py BUILD_FOLDER [--repetitions N] [--min-time SECONDS] [--json]

Each row is a process of its own, hosted by this Python interpreter, whose frames stand above the loop; the least of
the repetitions counts, since other work on the machine only ever adds. The driver's own launch does nothing here, so
the differences between rows are Grape's cost.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HOST_MARK = "BENCH_HOST_LIBRARY"  # set in the processes that run_bench.py starts to host the loop

# Row: environment on top of the common one; None: not preloaded at all.
ROWS: dict[str, "dict[str, str] | None"] = {
    "plain": None,
    "off": {"GRAPE_MODE": "off"},
    "recorded, no positions": {"GRAPE_MODE": "observe", "GRAPE_STACKS": "off"},
    "recorded, innermost frame": {"GRAPE_MODE": "observe", "GRAPE_STACKS": "leaf"},
    "recorded, whole stack": {"GRAPE_MODE": "observe", "GRAPE_STACKS": "python"},
    "recorded, native stack": {"GRAPE_MODE": "observe", "GRAPE_STACKS": "native"},
}


def host(library: str, arguments: list[str]) -> int:
    """Runs the benchmark library's main under a stack of Python frames about as deep as a model's."""
    argv = [b"grape_bench", *(argument.encode() for argument in arguments)]
    # RTLD_GLOBAL stays off and the call drops the GIL, as PyTorch's operators do.
    entry = ctypes.CDLL(library).grape_bench_main
    vector = (ctypes.c_char_p * (len(argv) + 1))(*argv, None)

    def call(depth: int) -> int:
        return entry(len(argv), vector) if depth == 0 else call(depth - 1)

    return call(25)


def measure(build: Path, extra: "dict[str, str] | None", options: argparse.Namespace, folder: Path) -> dict[str, float]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GRAPE_", "SIMCUDA_"))}
    environment.pop("LD_PRELOAD", None)
    environment.update(SIMCUDA_NULL="1", LD_LIBRARY_PATH=str(build / "lib" / "simcuda"))
    environment[HOST_MARK] = str(build / "lib" / "libgrape_bench.so")
    if extra is not None:
        environment.update(extra, LD_PRELOAD=str(build / "lib" / "libgrape.so"), GRAPE_TRACE=str(folder / "%p.grape"))
    command = [sys.executable, __file__, "--benchmark_format=json", f"--benchmark_min_time={options.min_time}",
               f"--benchmark_repetitions={options.repetitions}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"run_bench: {' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    complaints = [line for line in done.stderr.splitlines() if line.startswith("grape:")]
    if complaints:
        print("\n".join(complaints), file=sys.stderr)
    least: dict[str, float] = {}
    for run in json.loads(done.stdout)["benchmarks"]:
        if run["run_type"] != "iteration":
            continue
        if run.get("error_occurred"):
            raise SystemExit(f"run_bench: {run['name']}: {run['error_message']}")
        name = run["run_name"].split("/")[0]
        nanoseconds = 1e9 / run["items_per_second"]
        least[name] = min(least.get(name, nanoseconds), nanoseconds)
    return least


def lost_events(build: Path, folder: Path) -> "int | None":
    """Events that the traces of `folder` lack; None without the tool."""
    tool = build / "bin" / "grape"
    if not tool.exists():
        return None
    lost = 0
    for trace in folder.glob("*.grape"):
        done = subprocess.run([str(tool), "dump", str(trace), "summary", "--json"], capture_output=True, text=True)
        summary = json.loads(done.stdout) if done.returncode == 0 else {}
        lost += summary.get("lost", 0)
    return lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--min-time", type=float, default=0.2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    build = options.build.resolve()
    table: dict[str, dict[str, float]] = {}
    lost: dict[str, "int | None"] = {}
    for row, extra in ROWS.items():
        with tempfile.TemporaryDirectory() as folder:
            table[row] = measure(build, extra, options, Path(folder))
            lost[row] = lost_events(build, Path(folder)) if extra is not None else 0
    if options.json:
        print(json.dumps({"nanoseconds": table, "lost": lost}, indent=2))
        return 0
    names = list(table["plain"])
    width = max(map(len, ROWS))
    print(f"{'ns a call':{width}}  " + "  ".join(f"{name:>16}" for name in names) + "  events lost")
    for row, values in table.items():
        cells = []
        for name in names:
            added = values[name] - table["plain"][name]
            cells.append(f"{values[name]:7.1f} {'' if row == 'plain' else f'(+{added:.1f})':>8}")
        print(f"{row:{width}}  " + "  ".join(cells) + f"  {'?' if lost[row] is None else lost[row]:>11}")
    return 0


if __name__ == "__main__":
    sys.exit(host(os.environ[HOST_MARK], sys.argv[1:]) if HOST_MARK in os.environ else main())
