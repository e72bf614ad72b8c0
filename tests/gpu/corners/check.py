#!/usr/bin/env python3
"""Runs all cases plain and under GRAPE_MODE=replay, side by side, and compares them. GRAPE_BUILD_DIR names another build than
build/release. Exit status: compare.py's; 0 without a GPU."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("GRAPE_BUILD_DIR", HERE.parents[2] / "build" / "release"))


def main():
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for kind, settings in (
            ("plain", {}),
            ("replay", {"LD_PRELOAD": str(BUILD / "lib" / "libgrape.so"), "GRAPE_MODE": "replay"}),
        ):
            out = Path(folder) / f"{kind}.jsonl"
            command = [sys.executable, str(HERE / "corners.py"), "--out", str(out), *sys.argv[1:]]
            with open(Path(folder) / f"{kind}.log", "w", encoding="utf-8") as log:
                environment = {**os.environ, **settings}
                runs.append((out, subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=HERE)))
        statuses = [run.wait() for _, run in runs]
        if any(statuses):
            print(f"exit status {statuses[0]} plain, {statuses[1]} under replay")
        compared = subprocess.run(
            [sys.executable, str(HERE / "compare.py"), *(str(out) for out, _ in runs)], check=False
        )
        return compared.returncode


if __name__ == "__main__":
    sys.exit(main())
