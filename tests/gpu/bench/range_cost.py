#!/usr/bin/env python3
"""GPT-2 greedy `generate`, in turns of a few tokens that are recorded and turns that are not, in one process: run it with
GRAPE_TRACE_RANGE=profiler. Two turns, one of each kind in an order drawn at random, make a pair. Prints one JSON line: the
milliseconds a token of the recorded and of the other turns, pair by pair.

range_cost.py [--seconds N] [--tokens N] [--cores FIRST:END]

What differs between two processes of the same program (addresses, cores, caches) is several per cent; here both kinds of
turns have the same. A turn that is not recorded still goes through Grape's wrappers and the hooked Module.__call__: against
plain the cost is so much higher.
"""

import argparse
import json
import os
import random
import time
from typing import Callable

import torch

from speed import round_of

WARM_UP = 6  # turns


def timed(run: Callable[[], object], tokens: int) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1000 / tokens


def recorded(run: Callable[[], object], tokens: int) -> float:
    torch.cuda.profiler.start()
    try:
        return timed(run, tokens)
    finally:
        torch.cuda.profiler.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tokens", type=int, default=24, help="of a turn")
    parser.add_argument("--cores", help="the processor's cores to stay on")
    options = parser.parse_args()
    if options.cores:
        first, end = map(int, options.cores.split(":"))
        os.sched_setaffinity(0, range(first, end))
    run = round_of("gpt2", "plain", options.tokens)
    for _ in range(WARM_UP):
        timed(run, options.tokens)
        recorded(run, options.tokens)
    times: dict[str, list[float]] = {"recorded": [], "other": []}
    kinds = [("recorded", recorded), ("other", timed)]
    end_at, order = time.monotonic() + options.seconds, random.Random(os.getpid())
    while time.monotonic() < end_at:
        order.shuffle(kinds)
        for kind, turn in kinds:
            times[kind].append(turn(run, options.tokens))
    print(json.dumps(times))


if __name__ == "__main__":
    main()
