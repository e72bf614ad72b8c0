"""`cmake --install` puts everything into the usual folders, and the installed tool finds the installed library.

Usage: check_install.py CMAKE BUILD_FOLDER
"""

import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> int:
    cmake, build = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder, "usr")
        subprocess.run([cmake, "--install", build, "--prefix", str(prefix)], check=True, stdout=subprocess.DEVNULL)
        libraries = list(prefix.glob("lib*/**/libgrape.so"))
        assert len(libraries) == 1, f"libgrape.so: {libraries}"
        for name in ("bin/grape", "share/man/man1/grape.1", "share/doc/grape/README.md", "share/doc/grape/LICENSE"):
            assert Path(prefix, name).is_file(), f"{name} is not installed: {sorted(prefix.rglob('*'))}"
        # No test program and no simulated driver among them.
        strangers = [path for path in prefix.rglob("*cuda*")] + [path for path in prefix.rglob("*test*")]
        assert not strangers, strangers
        script = "import sys; print(any('libgrape.so' in line and sys.argv[1] in line for line in open('/proc/self/maps')))"
        ran = subprocess.run([str(prefix / "bin/grape"), "run", "--", sys.executable, "-c", script, str(prefix)],
                             capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == "True\n", f"the installed library was not loaded: {ran.stdout!r} {ran.stderr!r}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
