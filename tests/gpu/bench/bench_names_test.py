"""bench_names_test.py: ./scripts/bench knows each benchmark that its own text and docs/BENCHMARKS.md name."""

import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
COMMAND = re.compile(r"\./scripts/bench ([a-z][a-z-]*(?: \| [a-z][a-z-]*)*)")


def named(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return {name for names in COMMAND.findall(file.read()) for name in names.split(" | ")}


def main():
    names = named("scripts/bench") | named("docs/BENCHMARKS.md")
    if len(names) < 8:
        raise SystemExit(f"only {sorted(names)} are named")
    for name in sorted(names):
        done = subprocess.run(["./scripts/bench", name, "--help"], cwd=ROOT, capture_output=True, encoding="utf-8")
        if done.returncode != 0 or "usage" not in done.stdout:
            raise SystemExit(f"./scripts/bench {name} --help: exit status {done.returncode}: {done.stderr}")
    unknown = subprocess.run(["./scripts/bench", "nonsense"], cwd=ROOT, capture_output=True, encoding="utf-8")
    if unknown.returncode != 2 or not all(name in unknown.stderr for name in names):
        raise SystemExit(f"./scripts/bench nonsense: exit status {unknown.returncode}: {unknown.stderr}")


if __name__ == "__main__":
    sys.exit(main())
