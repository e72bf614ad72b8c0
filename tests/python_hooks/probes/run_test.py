"""Runs a test script with the probe preloaded. Exits 77 (skipped) where there is no such interpreter.

Usage: run_test.py INTERPRETER PROBE SCRIPT, INTERPRETER: a version ("3.11"), or "torch" for the interpreter that
GRAPE_TEST_TORCH_PYTHON names, which has PyTorch.
"""

import os
import subprocess
import sys

from interpreters import SKIPPED, interpreter

HERE = os.path.dirname(os.path.abspath(__file__))
# Of the probe that stands in for the recorder. Names of frames are kept in mode replay alone.
RECORDER = {
    "GRAPE_MODE": "observe",
    "GRAPE_REGIONS": "named:gen*,named:Runner.*,named:skipped",
    "GRAPE_EXCLUDE": "*:skipped,named:Excluded",
}


def environment_of(probe, script):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GRAPE_", "PYTHON"))}
    environment.update(LD_PRELOAD=probe, PROBE_LIBRARY=probe, PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=HERE)
    if "recorder" in os.path.basename(probe):
        environment.update(RECORDER, PYTHONPATH=os.pathsep.join((HERE, os.path.join(HERE, "fake_torch"))))
        if os.path.basename(script) == "frame_names_test.py":
            environment["GRAPE_MODE"] = "replay"
    else:
        environment["PYTHONHASHSEED"] = "0"
    return environment


def main(which, probe, script):
    path = os.environ.get("GRAPE_TEST_TORCH_PYTHON") if which == "torch" else interpreter(which)
    if not path:
        missing = "GRAPE_TEST_TORCH_PYTHON names no interpreter" if which == "torch" else "no Python " + which
        print("skipped: " + missing)
        return SKIPPED
    return subprocess.run([path, script], env=environment_of(probe, script)).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
