"""run.py FOLDER SEED ...: makes the programs of these numbers (generate.py) in FOLDER, runs each, and writes a JSON
line for each to the file that SIM_RESULTS names: what it saw, and how many operators ran in each call; where it
names none, a digest of it to stdout. With the simulated PyTorch (random_test.py), or the real one on a GPU
(check.py)."""

import builtins
import contextlib
import functools
import gc
import hashlib
import importlib
import json
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "programs"), os.path.join(HERE, "..", "programs", "simulated")]

import bed  # noqa: E402
import generate  # noqa: E402
import this_helper  # noqa: E402
import tiny  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

STATE = ("G_FLOAT", "G_INT", "G_LIST", "G_DICT", "G_DEQUE", "G_TENSORS")
OF_MODEL = ("a0", "count", "lst", "dct", "buf", "tensors")


def save():
    """What programs change beyond themselves."""
    places = [
        (nn.functional, "relu"),
        (math, "sqrt"),
        (this_helper, "VALUE"),
        (nn.Linear, "forward"),
        (builtins, "len"),
        (builtins, "sum"),
    ]
    return [(place, name, getattr(place, name)) for place, name in places]


def restore(saved):
    for place, name, value in saved:
        setattr(place, name, value)
    this_helper.__dict__.pop("added", None)
    sys.modules["this_helper"] = this_helper
    torch.set_grad_enabled(False).__enter__()


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for part in inside for tensor in tensors_of(part)]


def choose(how, rows, number, last, result, model):
    """The next call's input, as INPUTS names it."""
    fitting = [one for one in tensors_of(result) if tuple(one.shape) == (rows, 8)]
    if how == "again" and last is not None and last.shape[0] == rows:
        return last
    if how == "result" and fitting:
        return fitting[0]
    if how == "part":
        return tiny.data(number, rows + 2)[1 : rows + 1]
    if how == "columns":
        return (torch.rand(8, rows) - 0.5).cuda().t()
    if how == "buffer" and isinstance(model.buf, torch.Tensor) and tuple(model.buf.shape) == (8,):
        return model.buf.view(1, 8)
    if how == "changed" and last is not None and last.shape[0] == rows:
        last.add_(0.25)
        return last
    return tiny.data(number, rows)


def look(run, value):
    try:
        run.see(list(value) if type(value).__name__ == "deque" else value)
    except Exception as error:  # what a call left there may be anything
        run.see(f"{type(error).__name__}")


def run_program(folder, seed):
    name = f"program_{seed}"
    with open(os.path.join(folder, name + ".py"), "w", encoding="utf-8") as file:
        file.write(generate.source(seed))
    importlib.invalidate_caches()
    run, saved = bed.Run(), save()
    bed.seed_all(seed)
    program = importlib.import_module(name)
    model, cache, inputs = program.Model().cuda().eval(), program.Cache(), None
    result, kept = None, []
    with torch.no_grad():
        for before, (rows, k, how, after) in program.CALLS:
            try:
                before(model, cache)
            except Exception as error:
                run.see(f"before: {type(error).__name__}")
            inputs = choose(how, rows, len(run.seen), inputs, result, model)
            called = model if program.CALLED is None else functools.partial(program.CALLED, model)
            result = run(called, inputs, k, cache=cache)
            for tensor in tensors_of(result) if after in ("change", "keep") else ():
                kept.append(tensor)
                if after == "change":
                    with contextlib.suppress(RuntimeError):  # a weight, while gradients are on
                        tensor.mul_(0.5)
            result = None if after == "drop" else result
            for what in OF_MODEL:
                look(run, getattr(model, what, None))
        for what in STATE:
            look(run, getattr(program, what))
        look(run, [cache.kept, cache.layers, cache.calls])
        look(run, kept)
    restore(saved)
    return run


def main(folder, seeds):
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    results = os.environ.get("SIM_RESULTS")
    with open(results, "w", encoding="utf-8") if results else contextlib.nullcontext() as file:
        for seed in seeds:
            run = run_program(folder, int(seed))
            if file is None:
                print(f"program_{seed}", hashlib.sha256(json.dumps(run.seen).encode()).hexdigest()[:16], flush=True)
            else:
                file.write(json.dumps({"seed": int(seed), "calls": run.calls, "seen": run.seen}) + "\n")
                file.flush()
            gc.collect()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
