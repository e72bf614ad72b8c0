"""Runs a test script with the probe preloaded. Exits 77 (skipped) where there is no such interpreter.

Usage: run_test.py INTERPRETER PROBE SCRIPT, INTERPRETER: a version ("3.11"), or "torch" for the interpreter that
GRAPE_TEST_TORCH_PYTHON names, which has PyTorch.
"""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "python"))
from run_test import SKIPPED, interpreter  # noqa: E402


def main(which, probe, script):
    path = os.environ.get("GRAPE_TEST_TORCH_PYTHON") if which == "torch" else interpreter(which)
    if not path:
        print(
            "skipped: %s"
            % ("GRAPE_TEST_TORCH_PYTHON names no interpreter" if which == "torch" else "no Python " + which)
        )
        return SKIPPED
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GRAPE_", "PYTHON"))}
    environment.update(LD_PRELOAD=probe, PROBE_LIBRARY=probe, PYTHONDONTWRITEBYTECODE="1", PYTHONHASHSEED="0")
    return subprocess.run([path, os.path.join(HERE, script)], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
