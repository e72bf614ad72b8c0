#!/usr/bin/env python3
"""Whole training scripts, as users write them: plain and under Grape.

For each script of tests/gpu/scripts, whole processes that run one after the other, plain and Grape by turns. Grape's have the
caller's GRAPE_... variables; GRAPE_AUTOGRAD=1 replays training. A script itself times its first 30 steps, and the second half
of all its steps: evaluations in between are part of both. The table has medians over the processes.

train_scripts.py [--only NAME]... [--steps 300] [--processes 2] [--out FOLDER]
train_scripts.py --check [--jobs 3]     two plain processes and one under Grape, deterministic: are losses, weights, gradients,
                                        buffers, optimizers and random numbers drawn afterwards equal bit by bit?

Writes train-scripts.json and train-scripts.txt to --out.
Exit status: 0 measured (or no GPU), 1 a script failed, or differs only under Grape, 2 usage.
"""

import argparse
import os
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Optional

from paths import HERE
from gpu_machine import Build, add_options, environment, json_line, run, show, with_build
from train import OWN, Runs, TrainBench, difference_at_end, ratio

SCRIPTS = {
    "trainer_lora": HERE.parent / "scripts" / "trainer_lora.py",
    "lightning_validation": HERE.parent / "scripts" / "lightning_validation.py",
    "nanogpt": HERE.parent / "scripts" / "nanogpt.py",
    "gan": HERE.parent / "scripts" / "gan.py",
    "dqn": HERE.parent / "scripts" / "dqn.py",
}
TIMES = ("steady_ms_per_step", "first_30_ms")


def difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """What differs first between two lines of a script, in words; empty if nothing does."""
    pairs = enumerate(zip(one["losses"], other["losses"]), 1)
    unequal = next((number for number, (ours, theirs) in pairs if ours != theirs), None)
    if unequal is not None:
        return f"losses from number {unequal} of {len(one['losses'])} on"
    if len(one["losses"]) != len(other["losses"]):
        return "number of losses"
    return difference_at_end(one["digest"], other["digest"])


class ScriptBench(TrainBench):
    name, programs = "train-scripts", tuple(SCRIPTS)
    difference = staticmethod(difference)

    def __init__(self, options: argparse.Namespace, build: Build, scratch: Path) -> None:
        super().__init__(options, build, scratch)
        self.started: dict[str, Runs] = {}

    def command(self, program: str, *more: str) -> list[str]:
        small = ["--small"] if self.options.small else []
        return [self.options.python, str(SCRIPTS[program]), "--steps", str(self.options.steps), *small, *more]

    # How long a step takes.

    def once(self, program: str, kind: str, label: str) -> Optional[dict[str, Any]]:
        """What one process tells, and its seconds; None if it failed."""
        env = self.grape(label) if kind == "grape" else environment()
        done = run(self.command(program), env, max(10.0, self.left()))
        line = json_line(done.stdout) if done.status == 0 else None
        if line is None:
            self.failures.append(f"{program}, {kind}: status {done.status}: {done.stderr.strip()[-600:]}")
            return None
        return {**line, "process_s": done.seconds}

    def measure(self, program: str) -> list[str]:
        times: dict[str, list[dict[str, float]]] = {kind: [] for kind in OWN}
        reports: list[str] = []
        for number in range(self.options.processes):
            for kind in OWN:
                label = f"{program}-{number}"
                found = self.once(program, kind, label)
                if found is not None:
                    times[kind].append({name: found[name] for name in (*TIMES, "process_s")})
                    reports += [label] if kind == "grape" else []
        self.results[program] = times
        medians = {
            (kind, name): statistics.median(one[name] for one in times[kind]) if times[kind] else None
            for kind in OWN
            for name in TIMES
        }
        plain, grape = (medians[kind, "steady_ms_per_step"] for kind in OWN)
        first = ratio(medians["grape", "first_30_ms"], medians["plain", "first_30_ms"])
        replayed = self.replayed(reports[0]) if reports else ("", "")
        return [program, show(plain, 2), show(grape, 2), show(ratio(plain, grape), 2), show(first, 2), *replayed]

    # Are the bits the same?

    def check_command(self, program: str) -> list[str]:
        return self.command(program, "--deterministic")

    def check(self, program: str) -> list[str]:
        return self.compared(program, self.started[program])

    def parts(self) -> list[tuple[Any, list[str]]]:
        if self.options.check:
            return super().parts()
        heading = ["ms a step", "plain", "Grape", "gain", "first 30 steps, of plain's", "replayed", "most frequent reason"]
        return [(self.measure, heading)]

    def run(self) -> int:
        with ThreadPoolExecutor(self.options.jobs) as pool:
            if self.options.check:
                self.started = {program: self.start_check(pool, program) for program in self.options.only or self.programs}
            return super().run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=SCRIPTS, metavar="NAME", help=f"of {', '.join(SCRIPTS)}")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--processes", type=int, default=2, help="of plain and of Grape")
    parser.add_argument("--check", action="store_true", help="compare bits")
    parser.add_argument("--jobs", type=int, default=3, help="processes of --check that run at a time")
    parser.add_argument("--small", action="store_true", help="tiny models, to try it without a GPU")
    add_options(parser, 1800)
    # Trainer would spread its model over all GPUs.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    options = parser.parse_args()
    options.first = None
    return with_build(options, lambda build, scratch: ScriptBench(options, build, scratch).run())


if __name__ == "__main__":
    sys.exit(main())
