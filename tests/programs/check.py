#!/usr/bin/env python3
"""Runs cases of PyTorch plain and under GRAPE_MODE=replay, side by side, and compares them. What is no option of this script
goes to main.py. GRAPE_BUILD_DIR names another build than build/release. Exit status: 0 the same but for what is known
(or no GPU), 1 something differs or a process did not end well, 2 without a build."""

import argparse
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import compare

HERE = Path(__file__).resolve().parent
# In Grape's terms: the programs are too short for functions to be found.
REGIONS = "auto,cases_functions*:*region_*"
sys.path.insert(0, str(HERE.parent / "gpu"))
from gpu_machine import Build, environment, replaying, run, with_build  # noqa: E402


def check(options: argparse.Namespace, more: list[str], build: Build, scratch: Path) -> int:
    regions = {"GRAPE_REGIONS": "auto", "GRAPE_EARLY_REGIONS": "1"} if options.auto else {"GRAPE_REGIONS": REGIONS}
    under_grape = replaying(build, scratch / "report.json", GRAPE_LOOK_BUDGET="unlimited", **regions)
    settings = {"plain": environment(), "replay": under_grape}

    def start(kind: str):
        command = [options.python, compare.MAIN, "--out", str(scratch / kind), *more]
        return run(command, settings[kind], options.budget, HERE)

    with ThreadPoolExecutor(len(settings)) as pool:
        results = dict(zip(settings, pool.map(start, settings)))
    status = 0
    for kind, result in results.items():
        if result.status != 0:
            print(f"{kind}: exit status {result.status}\n{result.stderr[-2000:]}")
            status = 1
    bad = compare.judge(*(compare.read(scratch / kind) for kind in settings))
    return 1 if bad else status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=400, help="seconds that a process may take")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--auto", action="store_true", help="name no functions: all are found at once")
    parser.add_argument("--keep", help="folder for what they saw, and the report")
    options, more = parser.parse_known_args()
    options.python = os.path.abspath(shutil.which(options.python) or options.python)  # the programs run elsewhere
    return with_build(options, lambda build, scratch: check(options, more, build, scratch))


if __name__ == "__main__":
    sys.exit(main())
