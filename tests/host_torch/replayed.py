"""Runs a script of its own, or cases of tests/programs, plain and under GRAPE_MODE=replay, and compares them."""

import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "programs"))
import compare as programs  # noqa: E402

SECONDS = 540  # for a process; on a busy machine


def options(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--python", required=True)
    parser.add_argument("--grape", required=True)
    return parser.parse_args()


def process(command, grape=None, **changes):
    done = programs.Process(command, {**programs.plain_environment(), **changes}, SECONDS, grape)
    if done.status != 0:
        raise SystemExit(f"{command[1:]}: exit status {done.status}\n{done.stderr[-3000:]}")
    return done


def run(python, script, arguments, **changes):
    return process([python, os.path.abspath(script), *arguments], **changes).stdout.splitlines()


def compare(given, script, arguments, **changes):
    """The lines that it prints, the same plain, and what the report says of the regions."""
    plain = run(given.python, script, arguments)
    settings = {"LD_PRELOAD": given.grape, "GRAPE_MODE": "replay", **changes}
    under_grape = process([given.python, os.path.abspath(script), *arguments], settings)
    replayed = under_grape.stdout.splitlines()
    if replayed != plain:
        differ = [i for i, pair in enumerate(zip(plain, replayed)) if pair[0] != pair[1]][:8]
        raise SystemExit(f"{arguments}: {len(plain)} and {len(replayed)} lines; these differ: {differ}")
    return plain, under_grape.regions


class Cases:
    """Cases of tests/programs by main.py's arguments: run plain once, and compared with runs under Grape."""

    def __init__(self, given, arguments, **environment):
        self.given, self.environment = given, environment
        self.command = [given.python, programs.MAIN, *arguments]
        self.plain = process(self.command, **environment).results

    def under_grape(self, **settings):
        """What became of the regions."""
        done = process(self.command, {"LD_PRELOAD": self.given.grape, **settings}, **self.environment)
        if programs.judge(self.plain, done.results) or len(self.plain) != len(done.results):
            raise SystemExit(f"{self.command[2:]}: not all is as in the plain run")
        return done.regions
