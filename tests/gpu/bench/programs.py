#!/usr/bin/env python3
"""Whole short programs of libraries that others wrote (tests/gpu/programs), each from start to end, plain and under Grape.

Processes run one after the other, plain and Grape by turns. What counts is the time from the end of a program's first request, or
step, to its end. "worst moment": how much longer Grape had taken by then at most, of plain's time, once plain's first second had
passed. The table has medians over the processes; Grape's have the caller's GRAPE_... variables.

programs.py [--only NAME]... [--processes 3] [--out FOLDER]
programs.py --check [--jobs 3]     two plain processes and one under Grape, deterministic: is all that the programs look at equal, and
                                   are random numbers drawn afterwards?

The list was written before its first run; `tests/gpu/programs/loop.py --list` prints it. A program whose library is not there is told.
Writes programs.json and programs.txt to --out.
Exit status: 0 measured (or no GPU), 1 a program failed, or differs only under Grape, 2 usage.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any, Optional

from paths import HERE
from gpu_machine import Build, add_options, environment, json_line, run, show, with_build
from train import OWN, Runs, difference_at_end, ratio
from train_scripts import ScriptBench

LOOP = HERE.parent / "programs" / "loop.py"
BEGINNING = 1.0  # seconds of plain, within which no moment counts


def difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """What differs first between two runs, in words; empty if nothing does."""
    pairs = enumerate(zip(one["losses"], other["losses"]), 1)
    unequal = next((number for number, (ours, theirs) in pairs if ours != theirs), None)
    return difference_at_end(one["digest"], other["digest"]) if unequal is None else f"result {unequal}"


def worst_moment(plain: list[float], grape: list[float]) -> Optional[float]:
    """Grape's time over plain's at the worst moment, by the ends of the same requests; None: plain is done before it counts."""
    ratios = [ours / theirs for theirs, ours in zip(plain, grape) if theirs >= BEGINNING]
    return max(ratios, default=None)


def medians(runs: list[list[float]]) -> list[float]:
    return [statistics.median(ends) for ends in zip(*runs)]


class ProgramBench(ScriptBench):
    name = "programs"
    difference = staticmethod(difference)

    def __init__(self, options: argparse.Namespace, build: Build, scratch: Path) -> None:
        super().__init__(options, build, scratch)
        listed = run([options.python, str(LOOP), "--list"], environment(), 120)
        self.programs = tuple(line.split()[0] for line in listed.stdout.splitlines() if line.strip())
        self.sums = {kind: 0.0 for kind in OWN}
        unknown = sorted(set(options.only or ()) - set(self.programs))
        if unknown or not self.programs:
            raise SystemExit(f"no such program: {', '.join(unknown)}; {listed.stderr.strip()[-300:]}")

    def command(self, program: str, *more: str) -> list[str]:
        small = ["--small"] if self.options.small else []
        return [self.options.python, str(LOOP), program, *small, *more]

    def check_command(self, program: str) -> list[str]:
        return self.command(program, "--check")

    # How long a program takes.

    def measure(self, program: str) -> list[str]:
        ends: dict[str, list[list[float]]] = {kind: [] for kind in OWN}
        label = f"{program}-0"
        for number in range(self.options.processes):
            for kind in OWN if number % 2 == 0 else OWN[::-1]:
                found = self.once(program, kind, f"{program}-{number}")
                if found is not None and "missing" in found:
                    self.notes.append(f"{program}: not here: {', '.join(found['missing'])}")
                    return [program, "", "", "", "", "not here", ""]
                if found is not None:
                    ends[kind].append(found["ends_s"])
        self.results[program] = ends
        if not all(ends.values()):
            return [program, "", "", "", "", "failed", ""]
        plain, grape = (medians(ends[kind]) for kind in OWN)
        for kind, taken in zip(OWN, (plain, grape)):
            self.sums[kind] += taken[-1]
        worst = show(worst_moment(plain, grape), 2)
        return [program, show(plain[-1], 2), show(grape[-1], 2), show(ratio(grape[-1], plain[-1]), 2), worst, *self.replayed(label)]

    def compared(self, program: str, runs: Runs) -> list[str]:
        first = json_line(runs["plain"].result().stdout)
        if first is not None and "missing" in first:
            self.notes.append(f"{program}: not here: {', '.join(first['missing'])}")
            return [program, "", "not here", "not here", "", ""]
        return super().compared(program, runs)

    def parts(self) -> list[tuple[Any, list[str]]]:
        if self.options.check:
            return super().parts()
        heading = ["seconds", "plain", "Grape", "of plain's", "worst moment", "replayed", "most frequent reason"]
        return [(self.measure, heading)]

    def text(self) -> str:
        total = ratio(self.sums["grape"], self.sums["plain"])
        return super().text() + (f"all together: {show(total, 3)} of plain's time\n" if total is not None else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--processes", type=int, default=3, help="of plain and of Grape")
    parser.add_argument("--check", action="store_true", help="compare results")
    parser.add_argument("--jobs", type=int, default=3, help="processes of --check that run at a time")
    parser.add_argument("--small", action="store_true", help="tiny models, to try it without a GPU")
    add_options(parser, 3600)
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    options = parser.parse_args()
    options.first, options.steps = None, "all"
    return with_build(options, lambda build, scratch: ProgramBench(options, build, scratch).run())


if __name__ == "__main__":
    sys.exit(main())
