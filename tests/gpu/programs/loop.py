#!/usr/bin/env python3
"""One program of the list, from start to end, in a process of its own. Knows nothing of Grape. Prints one JSON line.

loop.py NAME [--small]            seconds from the end of the first request, or step, to the end of each later one
loop.py NAME --check [--small]    with deterministic algorithms: a digest of each result, and of random numbers drawn afterwards
loop.py --list                    all programs, with what they need
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch

import generation  # noqa: F401
import graphs  # noqa: F401
import learning  # noqa: F401
import lengths  # noqa: F401
import pictures  # noqa: F401
import sound  # noqa: F401
import texts  # noqa: F401
from bed import PROGRAMS, Listed, Run, digest_of


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(listed: Listed, run: Run, units: int) -> dict[str, Any]:
    began = time.perf_counter()
    ends = []
    program = listed.program(run)
    for _ in range(units):
        next(program)
        if not ends:
            synchronize()
        ends.append(time.perf_counter())
    synchronize()
    ends[-1] = time.perf_counter()
    return {"first_s": ends[0] - began, "ends_s": [end - ends[0] for end in ends[1:]]}


def checked(listed: Listed, run: Run, units: int) -> dict[str, Any]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    program = listed.program(run)
    digests = [digest_of(next(program)) for _ in range(units)]
    drawn = [random.random(), torch.rand(4), torch.rand(4, device=run.device)]
    return {"losses": digests, "digest": {"random": {"numbers": digest_of(drawn)}}, "last_loss": digests[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=PROGRAMS)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list or options.name is None:
        for one in PROGRAMS.values():
            print(f"{one.name:28} {one.units:4} {', '.join(one.needs):32} {one.what}")
        return
    listed = PROGRAMS[options.name]
    if listed.missing():
        print(json.dumps({"missing": listed.missing()}))
        return
    run = Run(options.small)
    units = min(listed.units, 4) if options.small else listed.units
    print(json.dumps((checked if options.check else timed)(listed, run, units)))


if __name__ == "__main__":
    main()
