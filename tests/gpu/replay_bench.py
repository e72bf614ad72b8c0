#!/usr/bin/env python3
"""How fast models run when Grape replays them, side by side with the ways one has without it.

For each workload of speed.py, processes that take turns: plain PyTorch, GRAPE_MODE=replay, a hand-written torch.cuda.graph,
torch.compile(mode="reduce-overhead") (the last two where they can be written). Plain and replay must give the same
bytes in every call. Prints a table and writes replay.json and replay.txt to --out.

Exit status: 0 measured (or no GPU), 1 a run failed or outputs differ, 2 usage.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Optional

from gpu_machine import HERE, Build, environment, find_build, gpu_problem, preloaded, run, table
from turns import Turns

WORKLOADS = (
    "resnet50",
    "vit",
    "bert",
    "gpt2",
    "gpt2_beams",
    "gpt2_sample",
    "gpt2_dropout",
    "t5",
    "wav2vec2",
    "gptj",
)
LOOPS = ("resnet50", "vit", "bert")  # can be captured by hand, and compiled as they are
WARM_TURNS = 3
LONG_WARM_TURNS = {"wav2vec2": 12}  # each of its 50 lengths has to come a few times


class ReplayBench:
    def __init__(self, options: argparse.Namespace, build: Build, scratch: Path) -> None:
        self.options, self.build, self.scratch = options, build, scratch
        self.deadline = time.monotonic() + options.budget
        self.failures: list[str] = []
        self.results: dict[str, Any] = {}

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def command(self, workload: str, *more: str) -> list[str]:
        calls = ["--calls", str(self.options.calls)]
        return [self.options.python, str(HERE / "speed.py"), workload, *calls, *more]

    def starts(self, workload: str) -> list[tuple[str, list[str], dict[str, str]]]:
        starts = []
        for number in range(self.options.processes):
            settings = {"GRAPE_MODE": "replay", "GRAPE_REPORT": str(self.scratch / f"{workload}-{number}.json")}
            starts.append(("plain", self.command(workload, "--serve"), environment()))
            starts.append(("replay", self.command(workload, "--serve"), preloaded(self.build, **settings)))
        if workload in LOOPS:
            starts.append(("graph", self.command(workload, "--serve", "--how", "graph"), environment()))
            if self.options.compile:
                starts.append(("compile", self.command(workload, "--serve", "--how", "compile"), environment()))
        return starts

    def measure(self, workload: str) -> list[str]:
        with Turns(self.starts(workload), max(10.0, self.left())) as turns:
            first = {}
            warm = LONG_WARM_TURNS.get(workload, WARM_TURNS)
            for number in range(warm + self.options.turns):
                turns.round(number, keep=number >= warm)
                if self.left() < 15:
                    break
            turns.finish()
            self.failures += [f"{workload} {failure}" for failure in turns.failures]
            for player in turns.players:
                if player.summary is not None:
                    first.setdefault(player.kind, player.summary["first_ms"])
            self.results[workload] = [{"kind": p.kind, "ms": p.times, "summary": p.summary} for p in turns.players]
            digests = {p.summary["digest"] for p in turns.players if p.summary and p.kind in ("plain", "replay")}
            if len(digests) != 1:
                self.failures.append(f"{workload}: outputs of plain and replay differ: {sorted(digests)}")
            medians = {kind: turns.median(kind) for kind in ("plain", "replay", "graph", "compile")}
        regions = self.regions(workload)
        self.results[f"{workload} regions"] = regions
        busy = self.busy(workload)
        gain = medians["plain"] / medians["replay"] if medians["plain"] and medians["replay"] else None
        main_region = max(regions, key=lambda r: r["replayed"], default={})
        return [
            workload,
            *(show(medians[kind]) for kind in ("plain", "replay", "graph", "compile")),
            show(busy),
            show(gain, 2),
            "equal" if len(digests) == 1 else "DIFFER",
            f"{main_region.get('replayed', '?')}/{main_region.get('calls', '?')}",
            str(main_region.get("reason") or "")[:80],
        ]

    def regions(self, workload: str) -> list[dict[str, Any]]:
        try:
            return json.loads((self.scratch / f"{workload}-0.json").read_text())["regions"]
        except (OSError, ValueError) as error:
            self.failures.append(f"{workload}: no report: {error}")
            return []

    def busy(self, workload: str) -> Optional[float]:
        """The GPU's own time a call."""
        if self.left() < 30 or not self.options.busy:
            return None
        result = run(
            self.command(workload, "--rounds", "2", "--busy"), environment(), min(self.left(), 120), self.scratch
        )
        lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
        return json.loads(lines[-1])["busy_ms"] if result.status == 0 and lines else None


def show(value: Optional[float], digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures replays on a GPU.")
    parser.add_argument("--only", action="append", choices=WORKLOADS, metavar="NAME")
    parser.add_argument("--calls", type=int, default=50, help="calls (tokens) a turn")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--processes", type=int, default=2, help="plain ones and replaying ones, of each so many")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well")
    parser.add_argument("--busy", action="store_true", help="the GPU's busy time as well")
    parser.add_argument("--budget", type=float, default=480, help="seconds for everything")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    options = parser.parse_args()
    problem = gpu_problem(options.python)
    if problem is not None:
        print(f"skipped: {problem}")
        return 0
    with tempfile.TemporaryDirectory(prefix="grape-replay-") as scratch:
        try:
            build = find_build(Path(scratch))
        except FileNotFoundError as error:
            print(error)
            return 2
        bench = ReplayBench(options, build, Path(scratch))
        rows = [
            [
                "ms a call",
                "plain",
                "replay",
                "graph",
                "compile",
                "busy",
                "gain",
                "bytes",
                "replayed",
                "last reason for eager",
            ]
        ]
        options.out.mkdir(parents=True, exist_ok=True)
        for workload in options.only or WORKLOADS:
            if bench.left() < 30:
                bench.failures.append(f"{workload}: no time left")
                continue
            rows.append(bench.measure(workload))
            (options.out / "replay.json").write_text(json.dumps(bench.results, indent=1))
            text = "\n".join([table(rows), *bench.failures]) + "\n"
            (options.out / "replay.txt").write_text(text)
        print(text)
        return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
