"""Where the interpreters of the versions are: on PATH, then among pyenv's versions, then in ~/.pyenv."""
import glob
import os
import shutil
import subprocess

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
