#!/usr/bin/env python3
"""Programs that could trip a replayer, all in one process. README.md says how.

corners.py [--only NAME]... [--skip NAME]... [--part I/N] [--out FILE] [--device cuda|cpu] [--list] [--no-late]
"""

import argparse
import contextlib
import gc
import hashlib
import importlib
import json
import random
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy
import torch

import bed

OTHERS = {"cases_small_calls", "cases_small_changes", "cases_transformers", "cases_usages", "cases_autograd", "cases_hidden_bases",
          "cases_swapped_memory", "cases_devices", "cases_within_reach"}
FILES = sorted({path.stem for path in Path(__file__).parent.glob("cases_*.py")} - OTHERS)


def mode_of(entry: bed.Entry):
    if entry.mode == "no_grad":
        return torch.no_grad()
    if entry.mode == "inference":
        return torch.inference_mode()
    return contextlib.nullcontext()


def simulated_device() -> bool:
    return bed.DEVICE == "cuda" and "simulated" in torch.cuda.get_device_name().lower()


def run_one(name: str, entry: bed.Entry) -> dict:
    run, error, skipped = bed.Run(name), "", ""
    torch.manual_seed(0), random.seed(0), numpy.random.seed(0)
    begin = time.monotonic()
    try:
        with warnings.catch_warnings(), bed.restored(), mode_of(entry):
            warnings.simplefilter("ignore")
            if entry.gpu_only and simulated_device():
                raise bed.Skip(entry.gpu_only)
            entry.function(run)
            run.synchronize()
            run.flush()
    except bed.Skip as skip:
        skipped = str(skip)
    except BaseException as problem:  # noqa: BLE001
        if isinstance(problem, KeyboardInterrupt) and not run.calls:
            raise
        error = f"{type(problem).__name__}: {problem}"[:600]
        traceback.print_exc()
        with contextlib.suppress(Exception):
            run.flush()
    gc.collect()
    whole = hashlib.sha256(json.dumps([run.calls, error]).encode()).hexdigest()[:24]
    return {
        "name": name,
        "digest": whole,
        "calls": run.calls,
        "error": error,
        "skipped": skipped,
        "seconds": round(time.monotonic() - begin, 3),
        "risk": entry.risk,
    }


def part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not 1 <= int(number) <= int(count):
        raise ValueError(text)
    return int(number), int(count)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("--part", type=part, default=(1, 1), metavar="I/N", help="each N-th case, from the I-th on")
    parser.add_argument("--out")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--no-late", action="store_true", help="without those that may end the process")
    options = parser.parse_args()
    bed.DEVICE = options.device
    for file in FILES:
        importlib.import_module(file)
    names = sorted(bed.CASES, key=lambda name: bed.CASES[name].late)  # stable: late ones last
    names = [n for n in names if not options.only or n in options.only]
    names = [n for n in names if n not in options.skip and not (options.no_late and bed.CASES[n].late)]
    names = names[options.part[0] - 1 :: options.part[1]]
    if options.list:
        for name in names:
            print(f"{name:45} {'late ' if bed.CASES[name].late else '     '}{bed.CASES[name].risk}")
        return
    if options.device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.zeros(1, device="cuda")
    else:
        torch.set_num_threads(1)
    lines, out = [], open(options.out, "w") if options.out else None
    for name in names:
        print(f"-- {name}", file=sys.stderr, flush=True)
        line = json.dumps(run_one(name, bed.CASES[name]))
        lines.append(line)
        if out:  # so that a crash shows how far it came
            out.write(line + "\n")
            out.flush()
    for line in lines:
        one = json.loads(line)
        if out:
            state = one["skipped"] and "skipped: " + one["skipped"] or one["error"]
            print(f"{one['name']:45} {one['digest']} {len(one['calls']):4} {one['seconds']:7.2f} s {state}", flush=True)
        else:
            print(line, flush=True)


if __name__ == "__main__":
    main()
