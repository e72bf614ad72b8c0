"""Programs made at random (generate.py) run plain and with libgrape.so preloaded; all that they see
must be equal.

random_test.py --grape LIBRARY --simcuda FOLDER --sim-torch FOLDER [--seeds FIRST:END] [--each] [--keep FOLDER]
               [--set GRAPE_NAME=VALUE]...

--seeds: which programs; without it the 150 of every test run. --each: a process for each program, not one for all.
--keep: leave the programs' texts there. --set: for the run under Grape. Exit status: 1 where a program saw something
else than in the plain run, or ended early.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "programs"), os.path.join(HERE, "..", "sim_torch")]
import simulated  # noqa: E402
from compare import pattern_of  # noqa: E402

LETTERS = {"e": "as always", "r": "replayed", "p": "replayed in part", "x": "raised"}
LEAST_REPLAYED = 0.2  # of all programs' calls: fewer would test nothing


def run(options, folder, seeds, grape):
    with tempfile.NamedTemporaryFile(mode="r", encoding="utf-8") as results:
        environment = simulated.environment(options, PYTHONHASHSEED="0", SIM_RESULTS=results.name)
        if grape:
            environment.update(LD_PRELOAD=options.grape, GRAPE_MODE="replay")
            environment.update(setting.split("=", 1) for setting in options.set)
        command = [sys.executable, os.path.join(HERE, "run.py"), folder, *map(str, seeds)]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", timeout=900
        )
        found = {one["seed"]: one for one in map(json.loads, results)}
    if done.returncode != 0:
        last = next((seed for seed in seeds if seed not in found), None)
        print(
            f"{'under Grape' if grape else 'plain'}: status {done.returncode} in program {last}\n{done.stderr[-3000:]}"
        )
    return found, done


def differences(plain, under_grape):
    """(number of the line seen, plain's, Grape's) of the first that differs; None: none."""
    pairs = list(zip(plain["seen"], under_grape["seen"]))
    for number, (one, other) in enumerate(pairs):
        if one != other:
            return number, one, other
    return None if len(plain["seen"]) == len(under_grape["seen"]) else (len(pairs), "", "")


def compare(options, folder, seeds):
    (plain, done), (under_grape, done_under_grape) = (run(options, folder, seeds, grape) for grape in (False, True))
    wrong, patterns = int(done.returncode != 0) + int(done_under_grape.returncode != 0), {}
    for seed in seeds:
        if seed not in plain or seed not in under_grape:
            continue
        patterns[seed] = pattern_of(plain[seed], under_grape[seed])
        difference = differences(plain[seed], under_grape[seed])
        if difference is not None:
            wrong += 1
            print(
                f"program {seed} ({patterns[seed]}): seen {difference[0]}: {difference[1]}, under Grape {difference[2]}"
            )
    if "differs from the call itself" in done_under_grape.stderr:
        wrong += 1
        print(done_under_grape.stderr[-3000:])
    return wrong, patterns


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grape", required=True)
    parser.add_argument("--simcuda", required=True)
    parser.add_argument("--sim-torch", required=True)
    parser.add_argument("--seeds", default="0:150")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--keep")
    parser.add_argument("--set", action="append", default=[], metavar="GRAPE_NAME=VALUE")
    options = parser.parse_args()
    seeds = range(*map(int, options.seeds.split(":")))
    wrong, patterns = 0, {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or scratch
        for some in [[seed] for seed in seeds] if options.each else [list(seeds)]:
            some_wrong, some_patterns = compare(options, folder, some)
            wrong += some_wrong
            patterns.update(some_patterns)
    calls = "".join(patterns.values())
    replayed = sum(calls.count(letter) for letter in "rp") / max(1, len(calls))
    letters = ", ".join(f"{calls.count(letter)} {name}" for letter, name in LETTERS.items())
    print(f"{len(patterns)} programs, {len(calls)} calls: {letters}; {wrong} wrong")
    return 1 if wrong or len(patterns) < len(seeds) or (len(seeds) >= 100 and replayed < LEAST_REPLAYED) else 0


if __name__ == "__main__":
    sys.exit(main())
