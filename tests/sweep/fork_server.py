"""A process that has imported all libraries, and forks one child for each program that it is asked for. Importing takes
longer than training. CUDA works in the children, because the parent never touches it.

    python fork_server.py SOCKET [MODULE...]

MODULEs are other programs than those of this folder; PYTHONPATH finds them, and only PyTorch is imported for them.
Each connection to the Unix socket is one request, a line of JSON: {"program", "out", "device", "steps", "limit"}. The
answer is one too: {"status", "pid", "seconds"}. The status is negative for a signal, and null for a timeout."""

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

LIBRARIES = (
    "torchvision", "timm", "transformers.modeling_utils", "transformers.trainer", "torch_geometric.nn", "peft",
    "lightning", "gpytorch", "torchdiffeq", "torchaudio",
)  # fmt: skip
FILES = ("programs_plain", "programs_layers", "programs_vision", "programs_text", "programs_graph", "programs_science",
         "programs_usage", "programs_autograd", "programs_trainers")  # fmt: skip


def load_programs(files: Sequence[str] = FILES) -> None:
    for name in files:
        importlib.import_module(name)


def import_libraries() -> None:
    import torch

    # torch_geometric asks for PyTorch's configuration, and the answer needs CUDA's driver.
    show = torch.__config__.show
    torch.__config__.show = lambda: ""
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    torch.__config__.show = show


def run_program(request: dict[str, Any]) -> int:
    """In the child. Writes what the program saw, step by step, and the exception that ended it if one did."""
    import torch
    from bed import PROGRAMS, Run, seed_everything, text_of

    entry = PROGRAMS[request["program"]]
    answer: dict[str, Any] = {"records": [], "error": None}
    run = Run(request["device"], request["steps"])
    answer["records"] = run.records
    if entry.gpu_only and request["device"] == "cuda" and "simulated" in torch.cuda.get_device_name().lower():
        answer["skipped"] = entry.gpu_only
    else:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # ordinary programs do not fill it
        seed_everything()
        try:
            entry.function(run)
            run.finish()
        except Exception as error:  # noqa: BLE001: a result like any other
            traceback.print_exc()
            answer["error"] = text_of(error)
            run.records.append({**run.now, "exception": text_of(error)})
    with open(request["out"], "w") as out:
        json.dump(answer, out)
    return 0


def child(request: dict[str, Any]) -> int:
    os.setsid()
    folder = os.path.dirname(request["out"])
    with open(request["out"] + ".log", "wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.chdir(folder)
    try:
        return run_program(request)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        return 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def keep(connection: socket.socket) -> None:
    """In a process of its own: starts the program, waits, ends it after its time, and answers."""
    with connection, connection.makefile("rw") as stream:
        request = json.loads(stream.readline())
        begin = time.monotonic()
        pid = os.fork()
        if pid == 0:
            os._exit(child(request))
        handle = os.pidfd_open(pid)
        ended = bool(select.select([handle], [], [], request["limit"])[0])
        if not ended:
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        answer = {"status": status if ended else None, "pid": pid, "seconds": time.monotonic() - begin}
        stream.write(json.dumps(answer) + "\n")
        stream.flush()


def main() -> None:
    if sys.argv[2:]:
        load_programs(sys.argv[2:])
    else:
        import_libraries()
        load_programs()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    server = socket.socket(socket.AF_UNIX)
    server.bind(sys.argv[1])
    server.listen(64)
    print("ready", flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        if not select.select([server], [], [], 1)[0]:
            continue
        connection, _ = server.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            server.close()
            with contextlib.suppress(BrokenPipeError):
                keep(connection)
            os._exit(0)
        connection.close()


if __name__ == "__main__":
    main()
