#!/usr/bin/env python3
"""Nanoseconds that one tiny PyTorch operator takes the CPU, so many Python frames deep. Prints one JSON line."""

import argparse
import json
import statistics
import time

import torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--depth", type=int, default=25)
    options = parser.parse_args()
    x = torch.zeros(1, device="cuda")

    def batch(count: int) -> float:
        begin = time.perf_counter_ns()
        for _ in range(count):
            x.add_(1)
        return (time.perf_counter_ns() - begin) / count

    def at_depth(depth: int, count: int) -> float:
        return batch(count) if depth <= 0 else at_depth(depth - 1, count)

    times = []
    for index in range(options.batches + 20):
        nanoseconds = at_depth(options.depth, 500)
        torch.cuda.synchronize()
        if index >= 20:
            times.append(nanoseconds)
    print(json.dumps({"min_ns": min(times), "median_ns": statistics.median(times)}))


if __name__ == "__main__":
    main()
