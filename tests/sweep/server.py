"""The driver's side of fork_server.py: starts one, and asks it for programs. Needs the standard library only."""

import json
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

HERE = Path(__file__).resolve().parent


def clean_environment(library: Optional[str] = None, settings: Optional[dict[str, str]] = None) -> dict[str, str]:
    """This process's environment without Grape, or with it preloaded; and what makes runs repeatable."""
    result = {name: value for name, value in os.environ.items() if not name.startswith("GRAPE_")}
    result.pop("LD_PRELOAD", None)
    result.update(PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                  CUBLAS_WORKSPACE_CONFIG=":4096:8", TORCHDYNAMO_DISABLE="1", OMP_NUM_THREADS="1",
                  PYTHONUNBUFFERED="1")  # fmt: skip
    if library is not None:
        result["LD_PRELOAD"] = os.path.abspath(library)
        result.update(settings or {})
    return result


def list_programs(python: str, modules: Sequence[str] = (), folder: Path = HERE) -> list[dict[str, Any]]:
    """All programs, or those of `modules` in `folder`. They import their libraries when they run, so that this takes little."""
    code = """
import json, sys, fork_server
from bed import PROGRAMS
fork_server.load_programs(sys.argv[1:] or fork_server.FILES)
print(json.dumps([{"name": p.name, "file": p.function.__module__, "tags": p.tags, "libraries": p.libraries,
                   "missing": p.missing(), "gpu_only": p.gpu_only, "about": p.about} for p in PROGRAMS.values()]))
"""
    environment = {**clean_environment(), "PYTHONPATH": f"{folder}:{HERE}"}
    done = subprocess.run([python, "-c", code, *modules], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"the programs cannot be listed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


class Server:
    def __init__(self, python: str, folder: Path, environment: dict[str, str], modules: Sequence[str] = ()) -> None:
        """`modules`: of other programs than those of this folder."""
        folder.mkdir()
        self.path = str(folder / "socket")
        self.errors = (folder / "errors").open("w+")
        self.process = subprocess.Popen(
            [python, str(HERE / "fork_server.py"), self.path, *modules],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            self.errors.seek(0)
            raise SystemExit(f"the server of programs did not start:\n{self.errors.read()[-2000:]}")

    def request(self, request: dict[str, Any]) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.path)
            with connection.makefile("rw") as stream:
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                return json.loads(stream.readline())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()
