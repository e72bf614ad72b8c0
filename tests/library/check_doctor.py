"""`grape doctor` on the simulated driver: everything essential works, whatever the user has set for traces.

Usage: check_doctor.py GRAPE SIMULATED_DRIVER_FOLDER
"""

import json
import os
import subprocess
import sys
import tempfile


def main() -> int:
    tool, driver = sys.argv[1:]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GRAPE_")}
    clean.pop("LD_PRELOAD", None)
    clean["LD_LIBRARY_PATH"] = driver
    with tempfile.TemporaryDirectory() as folder:
        for settings in ({}, {"GRAPE_TRACE_RANGE": "profiler"}, {"GRAPE_MODE": "off", "GRAPE_TRACE": "mine.grape"},
                         {"GRAPE_DISABLE": "1", "GRAPE_STACKS": "off"}):
            ran = subprocess.run([tool, "doctor", "--python", sys.executable, "--json"], capture_output=True, text=True,
                                 env={**clean, **settings}, cwd=folder)
            assert ran.returncode == 0, f"{settings}: {ran.returncode} {ran.stdout} {ran.stderr}"
            states = {check["check"]: check["state"] for check in json.loads(ran.stdout)["checks"]}
            assert states["driver"] == states["recording"] == "ok", f"{settings}: {states}"
            assert os.listdir(folder) == [], f"{settings}: it left {os.listdir(folder)}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
