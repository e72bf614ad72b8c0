#!/usr/bin/env python3
"""Programs made at random with PyTorch on a GPU: plain and under Grape, all
that they see must be equal.

check.py [--seeds FIRST:END] [--jobs N] [--set GRAPE_NAME=VALUE]... [--budget SECONDS] [--out FOLDER]

The programs are shared out among --jobs pairs of processes. What a program sees: its results, its model's state and its
globals, by content. Prints how many calls were replayed, and each program that saw something else; its text is kept in
--out. Exit status: 0 all equal (or no GPU), 1 not, or a process failed, 2 usage.
"""

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "gpu"))
from gpu_machine import Build, add_options, environment, regions_of, replaying, run, with_build  # noqa: E402

Seen = dict[int, list[str]]


class Share:
    """Some of the programs, in one plain process and one under Grape."""

    def __init__(self, number: int, seeds: list[int], folder: Path) -> None:
        self.number, self.seeds, self.folder = number, seeds, folder
        self.problems: list[str] = []
        self.replayed = self.calls = 0

    def see(self, options: argparse.Namespace, how: str, env: dict[str, str]) -> Seen:
        results = self.folder / f"{how}-{self.number}.json"
        texts = self.folder / f"{how}-{self.number}"
        texts.mkdir()
        command = [options.python, str(HERE / "run.py"), str(texts), *map(str, self.seeds)]
        done = run(command, {**env, "SIM_RESULTS": str(results)}, options.budget)
        lines = results.read_text().splitlines() if results.exists() else []
        seen = {one["seed"]: one["seen"] for one in map(json.loads, lines)}
        if done.status != 0:
            last = next((seed for seed in self.seeds if seed not in seen), None)
            self.problems.append(f"{how}: status {done.status} in program {last}: {done.stderr.strip()[-1500:]}")
        return seen

    def compare(self, options: argparse.Namespace, build: Build) -> "Share":
        report = self.folder / f"report-{self.number}.json"
        settings = dict(setting.split("=", 1) for setting in options.set)
        plain = self.see(options, "plain", environment())
        under_grape = self.see(options, "grape", replaying(build, report, **settings))
        for seed in sorted(plain.keys() & under_grape.keys()):
            pairs = enumerate(zip(plain[seed], under_grape[seed]))
            different = next(((at, one, other) for at, (one, other) in pairs if one != other), None)
            if different is not None or len(plain[seed]) != len(under_grape[seed]):
                self.problems.append(f"program {seed}: {different}")
                text = self.folder / f"grape-{self.number}" / f"program_{seed}.py"
                options.out.mkdir(parents=True, exist_ok=True)
                (options.out / text.name).write_text(text.read_text())
        if report.exists():
            regions = regions_of(report)
            self.replayed = sum(region["replayed"] for region in regions)
            self.calls = sum(region["calls"] for region in regions)
        return self


def measure(options: argparse.Namespace, build: Build, folder: Path) -> int:
    seeds = list(range(*map(int, options.seeds.split(":"))))
    shares = [Share(number, seeds[number :: options.jobs], folder) for number in range(options.jobs)]
    with ThreadPoolExecutor(options.jobs) as pool:
        done = list(pool.map(lambda share: share.compare(options, build), shares))
    problems = [problem for share in done for problem in share.problems]
    for problem in problems:
        print(problem)
    replayed, calls = sum(share.replayed for share in done), sum(share.calls for share in done)
    print(f"{len(seeds)} programs; {replayed} of {calls} module calls replayed; {len(problems)} problems")
    return 1 if problems or replayed == 0 else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:400")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--set", action="append", default=[], metavar="GRAPE_NAME=VALUE")
    add_options(parser, 120)
    options = parser.parse_args()
    return with_build(options, lambda build, folder: measure(options, build, folder))


if __name__ == "__main__":
    sys.exit(main())
