"""Runs a script of its own plain and under GRAPE_MODE=replay, and compares what it prints."""

import argparse
import json
import os
import subprocess
import tempfile


def options(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--python", required=True)
    parser.add_argument("--grape", required=True)
    return parser.parse_args()


def run(python, script, arguments, **changes):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRAPE_")}
    command = [python, os.path.abspath(script), *arguments]
    done = subprocess.run(command, env={**environment, **changes}, stdout=subprocess.PIPE, encoding="utf-8", timeout=240)
    if done.returncode != 0:
        raise SystemExit(f"{arguments}: exit status {done.returncode}")
    return done.stdout.splitlines()


def compare(given, script, arguments, **changes):
    """The lines that it prints, the same plain, and what the report says of the regions."""
    plain = run(given.python, script, arguments)
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        changes = {"LD_PRELOAD": given.grape, "GRAPE_MODE": "replay", "GRAPE_REPORT": report, **changes}
        replayed = run(given.python, script, arguments, **changes)
        with open(report, encoding="utf-8") as file:
            regions = json.load(file)["regions"]
    if replayed != plain:
        differ = [i for i, pair in enumerate(zip(plain, replayed)) if pair[0] != pair[1]][:8]
        raise SystemExit(f"{arguments}: {len(plain)} and {len(replayed)} lines; these differ: {differ}")
    return plain, regions
