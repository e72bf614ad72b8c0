#!/usr/bin/env python3
"""What Grape costs on a GPU, in fresh processes that take turns, one at a time where nothing else is said:

  generate   GPT-2 greedy `generate`: ms a token, plain, observe (with a trace), off, processes that take turns
  recorded   the same inside one process, whose turns are recorded or not; several processes at a time (range_cost.py)
  launch     one cuLaunchKernel: plain, off, observe without stacks
  operator   one tiny PyTorch operator: plain, off, observe without stacks, with the innermost frame, with whole stacks
  trace      size of the trace of 1,000 GPT-2 tokens, and the time `grape dump` takes on it

Prints a table and writes bench.json and bench.txt to --out. Exit status: 0 measured (or no GPU), 1 a run failed.
Ratios and costs are reported, not judged: run it on a machine with nothing else on it.
"""

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Optional

from paths import HERE
from gpu_machine import (
    Build,
    Measurement,
    add_options,
    environment,
    json_line,
    observed,
    preloaded,
    run,
    show,
    table,
    with_build,
)
from trace_compare import read_trace
from turns import Turns

SECTIONS = ("generate", "recorded", "launch", "operator", "trace")
Numbers = dict[str, float]
Start = tuple[list[str], dict[str, str]]


class Bench(Measurement):
    def __init__(self, options: argparse.Namespace, build: Build, scratch: Path) -> None:
        super().__init__(options, build, scratch)
        self.traces = 0

    def start(self, mode: str, command: list[str]) -> Start:
        """Command and environment for a mode: plain, off, observe, or observe with GRAPE_STACKS=: `observe:off`."""
        if mode == "plain":
            return command, environment()
        if mode == "off":
            return command, preloaded(self.build, GRAPE_MODE="off")
        stacks = mode.partition(":")[2]
        self.traces += 1
        trace = self.scratch / f"bench-{self.traces}.grape"
        return observed(self.build, trace, command, **({"GRAPE_STACKS": stacks} if stacks else {}))

    def once(self, label: str, mode: str, command: list[str]) -> Optional[Numbers]:
        """One process's JSON line; None if it failed, or no time is left."""
        if self.left() < 5:
            return None
        result = run(*self.start(mode, command), min(self.left(), 240), self.scratch)
        numbers = json_line(result.stdout)
        for trace in self.scratch.glob("bench-*.grape"):
            trace.unlink()
        if result.status != 0 or numbers is None:
            self.failures.append(f"{label} {mode}: status {result.status}: {result.stderr.strip()[-600:]}")
            return None
        return numbers

    def rounds(
        self, label: str, modes: list[str], command: list[str], count: int, until: float
    ) -> list[dict[str, Numbers]]:
        """Rounds in which each mode runs once, in turning order; whole rounds only, until the time share is spent."""
        rounds: list[dict[str, Numbers]] = []
        end = time.monotonic() + until
        for index in range(count):
            begin = time.monotonic()
            turn = modes[index % len(modes) :] + modes[: index % len(modes)]
            round_results = {mode: self.once(label, mode, command) for mode in turn}
            if any(numbers is None for numbers in round_results.values()):
                break
            rounds.append({mode: numbers for mode, numbers in round_results.items() if numbers is not None})
            if time.monotonic() + (time.monotonic() - begin) > end:
                break
        return rounds

    def generate(self) -> list[list[str]]:
        """Several processes of each mode, alive side by side, that take turns."""
        modes = ["plain", "observe", "off"]
        command = self.speed("gpt2", 100, "--serve")
        starts = [(mode, *self.start(mode, command)) for _ in range(self.options.processes) for mode in modes]
        starts[0] = (modes[0], *self.start(modes[0], [*command, "--busy"]))
        begin, share = time.monotonic(), min(0.5 * self.options.budget, 0.8 * self.left())
        with Turns(starts, min(self.left(), 2 * share)) as turns:
            for number in range(self.options.turns + 1):
                turns.round(number, keep=number > 0)
                if time.monotonic() - begin > share:
                    break
            turns.finish()
            self.failures += [f"generate {failure}" for failure in turns.failures]
            self.results["generate"] = [{"mode": p.kind, "ms": p.times, "summary": p.summary} for p in turns.players]
            rows = [["GPT-2 generate", "median ms/token", "ratio to plain: median", "least", "most", "turns"]]
            for mode in modes:
                ratios = turns.ratios(mode, "plain")
                if not ratios:
                    continue
                values = (turns.median(mode) / turns.median("plain"), min(ratios), max(ratios))
                rows.append(
                    [mode, f"{turns.median(mode):.3f}", *(f"{value:.4f}" for value in values)]
                    + [f"{len(ratios)} of {len(turns.of(mode))} processes"]
                )
        busy = [player.summary["busy_ms"] for player in turns.players if player.summary and "busy_ms" in player.summary]
        rows.append(["GPU busy", *map(show, busy), *[""] * (len(rows[0]) - 1 - len(busy))])
        return rows

    def recorded(self) -> list[list[str]]:
        """Each process has cores of its own, for its writer thread as well."""
        count, cores = self.options.recorded_processes, len(os.sched_getaffinity(0))
        share, each = min(0.2 * self.options.budget, 0.5 * self.left()), max(1, cores // self.options.recorded_processes)
        traces = [self.scratch / f"recorded-{i}.grape" for i in range(count)]
        started = []
        for i, trace in enumerate(traces):
            command = [self.options.python, str(HERE / "range_cost.py"), "--seconds", f"{share:.0f}"]
            if cores >= 2 * count:
                command += ["--cores", f"{i * each}:{(i + 1) * each}"]
            started.append(observed(self.build, trace, command, GRAPE_TRACE_RANGE="profiler"))
        with ThreadPoolExecutor(count) as pool:
            results = list(pool.map(lambda s: run(*s, share + 120, self.scratch), started))
        rows = [["recorded or not, in one process", "pairs", "ms/token not recorded", "recorded: median of pairs' ratios"]]
        self.results["recorded"] = []
        for i, (result, trace) in enumerate(zip(results, traces)):
            times = json_line(result.stdout)
            if result.status != 0 or times is None or not trace.exists():
                self.failures.append(f"recorded {i}: status {result.status}: {result.stderr.strip()[-600:]}")
                continue
            trace.unlink()
            self.results["recorded"].append(times)
            ratios = [on / off for on, off in zip(times["recorded"], times["other"])]
            values = (f"{statistics.median(times['other']):.3f}", f"{statistics.median(ratios):.4f}")
            rows.append([f"process {i}", str(len(ratios)), *values])
        return rows

    def cost(self, label: str, modes: list[str], command: list[str], keys: list[str]) -> list[list[str]]:
        """Nanoseconds over plain for each mode: the median over rounds of the difference in one round."""
        rounds = self.rounds(label, modes, command, self.options.rounds, 0.15 * self.options.budget)
        self.results[label] = rounds
        rows = [[label, *(f"{key} (over plain)" for key in keys), "rounds"]]
        for mode in modes if rounds else []:
            cells = []
            for key in keys:
                value = statistics.median(numbers[mode][key] for numbers in rounds)
                over = statistics.median(numbers[mode][key] - numbers["plain"][key] for numbers in rounds)
                cells.append(f"{value:.0f}" if mode == "plain" else f"{value:.0f} ({over:+.0f})")
            rows.append([mode, *cells, str(len(rounds))])
        return rows

    def launch(self) -> list[list[str]]:
        program = self._compile_launch_bench()
        if program is None:
            return [["launch"], ["not measured"]]
        keys = ["launch_min_ns", "launch_median_ns", "refused_min_ns"]
        return self.cost("launch", ["plain", "off", "observe:off"], [str(program)], keys)

    def _compile_launch_bench(self) -> Optional[Path]:
        program = self.build.folder / "bin" / "launch_bench"
        if program.exists():
            return program
        compiler = shutil.which("g++") or shutil.which("clang++")
        if compiler is None:
            self.failures.append("launch: no C++ compiler")
            return None
        program = self.scratch / "launch_bench"
        nvcc = shutil.which("nvcc")
        folders = [Path(nvcc).resolve().parent.parent] if nvcc else []
        folders.append(Path("/usr/local/cuda"))
        includes = [
            f"-I{path}"
            for f in folders
            for path in (f / "include", f / "targets/x86_64-linux/include")
            if path.is_dir()
        ]
        command = [compiler, "-O2", "-std=c++17", *includes, str(HERE / "launch_bench.cc"), "-o", str(program), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            self.failures.append(f"launch: {done.stderr.strip()[-600:]}")
            return None
        return program

    def operator(self) -> list[list[str]]:
        modes = ["plain", "off", "observe:off", "observe:leaf", "observe:python"]
        command = [self.options.python, str(HERE / "operator_cost.py")]
        return self.cost("operator", modes, command, ["min_ns", "median_ns"])

    def trace(self) -> list[list[str]]:
        rows = [["trace of 1,000 GPT-2 tokens", "value"]]
        if self.left() < 20:
            return [*rows, ["not measured", "no time left"]]
        path = self.scratch / "long.grape"
        command = self.speed("gpt2", 1000, "--rounds", "1")
        result = run(*observed(self.build, path, command), min(self.left(), 120), self.scratch)
        trace, reason = read_trace(self.build, path)
        if result.status != 0 or not path.exists():
            self.failures.append(f"trace: status {result.status}: {result.stderr.strip()[-600:]} {reason}")
            return [*rows, ["failed", ""]]
        self.results["trace"] = {"file_bytes": path.stat().st_size}
        rows.append(["file", f"{path.stat().st_size / 1e6:.3f} MB"])
        if trace is not None:
            numbers = {name: trace.data[name] for name in ("events", "lost", "complete", "block_allocs", "regions")}
            self.results["trace"].update(numbers, launches=sum(trace.executed().values()))
            rows += [[name, str(value)] for name, value in numbers.items()]
            rows.append(["launches", str(self.results["trace"]["launches"])])
        rows += self._dump_times(path)
        return rows

    def _dump_times(self, path: Path) -> list[list[str]]:
        rows = []
        for view in ("summary", "regions", "graphs", "kernels") if self.build.tool is not None else ():
            result = run([str(self.build.tool), "dump", str(path), view], environment(), 60)
            self.results["trace"][f"dump {view} s"] = result.seconds
            rows.append([f"grape dump {view}", f"{result.seconds:.3f} s, {len(result.stdout)} characters"])
            if result.status != 0:
                self.failures.append(f"dump {view}: status {result.status}: {result.stderr.strip()[-300:]}")
        return rows


def machine(python: str) -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    program = "import torch, transformers; print('torch', torch.__version__, 'transformers', transformers.__version__)"
    versions = subprocess.run([python, "-c", program], capture_output=True, text=True, env=environment()).stdout.strip()
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    cpu = models[0].partition(":")[2].strip() if models else platform.processor()
    return f"{gpu}; {cpu}, {len(models)} cores; Python {platform.python_version()}, {versions}"


def measure(bench: Bench) -> int:
    options = bench.options
    parts = [machine(options.python)]
    bench.results["machine"] = parts[0]
    sections: dict[str, Callable[[], list[list[str]]]] = {
        "trace": bench.trace,
        "launch": bench.launch,
        "operator": bench.operator,
        "recorded": bench.recorded,
        "generate": bench.generate,
    }
    for name, section in sections.items():
        if options.only and name not in options.only:
            continue
        parts.append(table(section()))
        bench.write("bench", "\n\n".join(parts + bench.failures) + "\n")
        print(f"{name}: {bench.left():.0f} s left", flush=True)
    print("\n\n".join(parts + bench.failures))
    return 1 if bench.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures what Grape costs on a GPU.")
    parser.add_argument("--only", action="append", choices=SECTIONS, metavar="NAME")
    parser.add_argument("--processes", type=int, default=4, help="processes of each mode for GPT-2 generate")
    parser.add_argument("--recorded-processes", type=int, default=2, help="processes of `recorded`, all at once")
    parser.add_argument("--turns", type=int, default=15, help="turns of each of them, 100 tokens each")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the micro-benchmarks")
    add_options(parser, 600)
    options = parser.parse_args()
    return with_build(options, lambda build, scratch: measure(Bench(options, build, scratch)))


if __name__ == "__main__":
    sys.exit(main())
