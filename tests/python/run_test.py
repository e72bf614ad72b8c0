"""Runs a test script in an interpreter of the given version, with the probe preloaded. Exits 77 (skipped) without one.

Looked through: PATH, then pyenv's versions, then ~/.pyenv. Usage: run_test.py VERSION PROBE SCRIPT
"""
import glob
import os
import shutil
import subprocess
import sys

SKIPPED = 77


def candidates(version):
    found = shutil.which("python" + version)
    if found:
        yield found
    roots = [os.environ.get("PYENV_ROOT", ""), os.path.expanduser("~/.pyenv")]
    if shutil.which("pyenv"):
        roots.append(subprocess.run(["pyenv", "root"], stdout=subprocess.PIPE, text=True).stdout.strip())
    for root in filter(None, roots):
        yield from sorted(glob.glob(os.path.join(root, "versions", version + ".*", "bin", "python" + version)))
    if shutil.which("python3"):
        yield shutil.which("python3")


def interpreter(version):
    for path in candidates(version):
        asked = subprocess.run(
            [path, "-c", "import sys, ctypes; print('%d.%d' % sys.version_info[:2])"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if asked.returncode == 0 and asked.stdout.strip() == version:
            return path
    return None


def main(version, probe, script):
    path = interpreter(version)
    if path is None:
        print("skipped: no Python %s on this machine" % version)
        return SKIPPED
    here = os.path.dirname(os.path.abspath(__file__))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GRAPE_", "PYTHON"))}
    environment.update(
        LD_PRELOAD=probe,
        PROBE_LIBRARY=probe,
        PYTHONPATH=os.path.join(here, "fake_torch"),
        PYTHONDONTWRITEBYTECODE="1",
        # Names of frames are kept in mode replay alone.
        GRAPE_MODE="replay" if script.startswith("frame_names") else "observe",
        GRAPE_REGIONS="named:gen*,named:Runner.*,named:skipped",
        GRAPE_EXCLUDE="*:skipped,named:Excluded",
    )
    return subprocess.run([path, os.path.join(here, script)], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
