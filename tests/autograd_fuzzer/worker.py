"""worker.py: imports PyTorch, then forks a child for each line of JSON that comes from stdin, and answers with one.

In: {"programs": [[name, file], ...], "results": file, "errors": file, "seconds": limit}. The child runs the programs
one after the other, each with its steps, and writes what each step saw to `results`. Out: {"pid", "status"}; status 124:
it took too long. A child that is forked before CUDA is used is a process like any other, also to Grape, and all that
has to be imported is there.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import random
import signal
import sys
import time
import warnings

import common
import looks
import torch
import torch._dynamo  # noqa: F401  what checkpoint() and optimizers would import later
import torch.utils.checkpoint  # noqa: F401


def load(file):
    name = os.path.basename(file)[:-3]
    spec = importlib.util.spec_from_file_location(name, file)
    program = importlib.util.module_from_spec(spec)
    sys.modules[name] = program
    spec.loader.exec_module(program)
    return program


def steps_of(program):
    names = [name for name in vars(program) if name.startswith("step_")]
    return [(name, getattr(program, name)) for name in sorted(names, key=lambda name: int(name[5:]))]


def run_step(program, state, name, step, last):
    seen = {}
    try:
        step(state)
    except Exception as error:
        seen["error"] = looks.error_text(error)
        del error
    full = last or getattr(program, "LOOK", "all") == "all"
    seen.update(looks.look(state, program, common.LOG, full))
    torch.cuda.synchronize()
    text = json.dumps(seen, sort_keys=True)
    return {"step": name, "hash": hashlib.sha256(text.encode()).hexdigest()[:16], "seen": seen}


def run_program(file):
    common.LOG.clear()
    torch.manual_seed(1)
    random.seed(1)
    torch.set_grad_enabled(True)
    try:
        program = load(file)
        state = program.start()
    except Exception as error:
        return [{"step": "start", "hash": "", "seen": {"error": looks.error_text(error)}}]
    steps = steps_of(program)
    seen = [run_step(program, state, *one, last=one is steps[-1]) for one in steps]
    seen.append({"step": "end", "hash": "", "seen": {"drawn": repr(torch.rand(2, device="cuda").tolist())}})
    return seen


def run_all(job):
    with open(job["results"], "w", encoding="utf-8") as results:
        for name, file in job["programs"]:
            print(f"program {name}", file=sys.stderr, flush=True)
            results.write(json.dumps({"name": name, "steps": run_program(file)}) + "\n")
            results.flush()


def child(job):
    with open(job["errors"], "w", encoding="utf-8") as errors:
        os.dup2(errors.fileno(), 2)
        os.dup2(errors.fileno(), 1)
    warnings.simplefilter("ignore")
    status = 1
    with contextlib.suppress(SystemExit):
        run_all(job)
        status = 0
    sys.stderr.flush()
    os._exit(status)  # the end of the interpreter takes longer than the programs


def wait_for(pid, seconds):
    """Its exit status; the signal's number below zero; 124: it took too long, and was killed."""
    limit = time.monotonic() + seconds
    pause = 0.002
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done == pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > limit:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return 124
        time.sleep(pause)
        pause = min(pause * 1.2, 0.05)


def main():
    sys.dont_write_bytecode = True
    print(json.dumps({"ready": torch.__version__}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                child(job)
            finally:
                os._exit(1)
        status = wait_for(pid, job["seconds"])
        print(json.dumps({"pid": pid, "status": status}), flush=True)


if __name__ == "__main__":
    main()
