"""bench_names_test.py: ./scripts/bench knows each benchmark that its own text and docs/BENCHMARKS.md name, and the scripts
of tests/gpu start files that are there."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
COMMAND = re.compile(r"\./scripts/bench ([a-z][a-z-]*(?: \| [a-z][a-z-]*)*)")

# A file that a script of tests/gpu names by the folder that it is in, or by that of gpu_machine.py.
FILE = re.compile(r"\bHERE((?:\.parent)*)((?: / \"[\w.-]+\")+)")


def files_named():
    """Pairs of a script and a file that it names."""
    folder = pathlib.Path(ROOT, "tests", "gpu").resolve()
    for script in folder.rglob("*.py"):
        text = script.read_text(encoding="utf-8")
        here = folder if "gpu_machine import" in text and "paths import HERE" not in text else script.parent
        for up, parts in FILE.findall(text):
            path = here
            for _ in range(up.count(".parent")):
                path = path.parent
            yield script, path.joinpath(*re.findall(r"\"([\w.-]+)\"", parts))


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
    files = list(files_named())
    if len(files) < 8:
        raise SystemExit(f"only {files} are named")
    for script, path in files:
        if path.suffix and not path.exists():
            raise SystemExit(f"{script} names {path}, which is not there")


if __name__ == "__main__":
    sys.exit(main())
