#!/usr/bin/env python3
"""Runs training programs plain and under Grape, and compares all that they see, step by step and bit by bit. GRAPE_...
variables of the environment hold for the runs under Grape. Exit status: 0 all equal; 1 something differs, or a program
did not end well; 2 without a library or an interpreter."""

import argparse
import fnmatch
import json
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIBRARY = HERE.parent.parent / "build" / "release" / "lib" / "libgrape.so"
sys.path.insert(0, str(HERE))
from compare import Outcome, judge, summary_of_reports  # noqa: E402
from server import Server, clean_environment, list_programs  # noqa: E402

BAD = ("differs", "error", "crashed", "time limit")


def chosen(programs: list[dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """By pattern (of a name, a file or a tag), then every N-th of these."""

    def matches(program: dict[str, Any]) -> bool:
        words = [program["name"], program["file"], *program["tags"]]
        return any(fnmatch.fnmatch(word, pattern) for word in words for pattern in options.only.split(","))

    part, parts = (int(number) for number in options.part.split("/"))
    if not 1 <= part <= parts:
        raise SystemExit("--part: I/N, with I from 1 to N")
    return [program for program in programs if matches(program)][part - 1 :: parts]


class Sweep:
    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self.options, self.scratch = options, scratch
        settings = {name: value for name, value in os.environ.items() if name.startswith("GRAPE_")}
        settings["GRAPE_REPORT"] = str(scratch / "report-%p.json")
        settings.setdefault("GRAPE_LOOK_BUDGET", "unlimited")  # the programs are short
        plain, grape = clean_environment(), clean_environment(options.grape, settings)
        plain["PYTHONPATH"] = grape["PYTHONPATH"] = str(options.folder)
        self.plain = Server(options.python, scratch / "plain", plain, options.modules)
        self.grape = Server(options.python, scratch / "grape", grape, options.modules)

    def close(self) -> None:
        self.plain.close()
        self.grape.close()

    def once(self, server: Server, program: str, name: str) -> dict[str, Any]:
        """One run: what the program saw, how its process ended, and what Grape reports of it."""
        out = self.scratch / f"{program}.{name}.json"
        request = {"program": program, "out": str(out), "device": self.options.device, "steps": self.options.steps}
        ended = server.request({**request, "limit": self.options.time_limit})
        result: dict[str, Any] = {"records": [], "error": None, **ended}
        log = Path(f"{out}.log")
        result["log"] = log.read_text(errors="replace") if log.exists() else ""
        if ended["status"] == 0:
            result.update(json.loads(out.read_text()))
        report = self.scratch / f"report-{ended['pid']}.json"
        if report.exists():
            result["report"] = json.loads(report.read_text())
        for path in (out, log, report):
            path.unlink(missing_ok=True)
        return result

    def program(self, program: dict[str, Any]) -> Outcome:
        name = program["name"]
        if program["missing"]:
            return Outcome(name, "missing library", ", ".join(program["missing"]))
        first = self.once(self.plain, name, "plain-1")
        if first.get("skipped"):
            return Outcome(name, "skipped", first["skipped"])
        plain = [first]
        grape = [self.once(self.grape, name, f"grape-{number}") for number in range(1, self.options.runs + 1)]
        outcome = judge(name, plain, grape)
        if outcome.kind == "differs":  # from itself, too?
            plain.append(self.once(self.plain, name, "plain-2"))
            outcome = judge(name, plain, grape)
        outcome.seconds = {
            "plain": min(run["seconds"] for run in plain),
            "grape": min(run["seconds"] for run in grape),
        }
        outcome.replays = summary_of_reports([run["report"] for run in grape if "report" in run])
        return outcome


def run_all(options: argparse.Namespace, programs: list[dict[str, Any]], scratch: Path) -> list[Outcome]:
    width = max(len(program["name"]) for program in programs)
    outcomes = []
    sweep = Sweep(options, scratch)
    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            for outcome in pool.map(sweep.program, programs):
                print(outcome.line(width), flush=True)
                if options.verbose and outcome.log:
                    print(outcome.log)
                outcomes.append(outcome)
    finally:
        sweep.close()
    return outcomes


def summary(outcomes: list[Outcome], seconds: float) -> str:
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome.kind] = counts.get(outcome.kind, 0) + 1
    words = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items(), key=lambda item: -item[1]))
    replayed = sum(1 for outcome in outcomes if outcome.replays.get("replayed"))
    return f"{len(outcomes)} programs: {words}; calls were replayed in {replayed} of them; {seconds:.0f} s"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch")
    parser.add_argument("--grape", default=str(LIBRARY), help="libgrape.so; default: that of build/release")
    parser.add_argument("--only", action="append", help="patterns of names, files or tags, comma-separated")
    parser.add_argument("--part", default="1/1", help="I/N: every N-th program, from the I-th on")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time")
    parser.add_argument("--runs", type=int, default=1, help="runs of each program under Grape")
    parser.add_argument("--steps", type=int, default=24, help="training steps of most programs")
    parser.add_argument("--time-limit", type=float, default=180, help="seconds that one run may take")
    parser.add_argument("--device", default="cuda", help="cpu: to try a program; Grape has nothing to do there")
    parser.add_argument("--list", action="store_true", help="print the programs as a table, and run none")
    parser.add_argument("--json", help="write the outcomes to this file, too")
    parser.add_argument("--verbose", action="store_true", help="print what a program that failed wrote")
    parser.set_defaults(modules=(), folder=HERE)  # of other programs
    options = parser.parse_args()
    options.only = ",".join(options.only or ["*"])
    options.python = shutil.which(options.python) or options.python
    return options


def main() -> int:
    options = parse()
    if not Path(options.python).exists() or not (options.list or Path(options.grape).exists()):
        print("no interpreter or no library there: --python, --grape", file=sys.stderr)
        return 2
    programs = chosen(list_programs(options.python), options)
    if options.list:
        for program in programs:
            only = f" GPU only: {program['gpu_only']}." if program["gpu_only"] else ""
            words = " ".join(program["tags"])
            print(f"| {program['name']} | {words} | {' '.join(program['libraries'])} | {program['about']}{only} |")
        return 0
    if not programs:
        print("no program has such a name", file=sys.stderr)
        return 2
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sweep-") as scratch:
        outcomes = run_all(options, programs, Path(scratch))
    print(summary(outcomes, time.monotonic() - begin))
    if options.json:
        Path(options.json).write_text(json.dumps([vars(outcome) for outcome in outcomes], indent=1))
    return 1 if any(outcome.kind in BAD for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
