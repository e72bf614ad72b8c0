#!/usr/bin/env python3
"""Does PyTorch itself give the same bits twice? GPT-2's decode step on one and the same cache, again and again.

reproducible.py [--lengths 100,256,...] [--calls 100]

No Grape: where a plain call differs from the first one of its length, no replay can equal "the" eager call, and Grape
refuses it (GRAPE_ALLOW_NONDETERMINISTIC). Prints one row for each length: how many calls differ, and the first tensor
that does. Exit status: 0 measured (or no GPU).
"""

import argparse
import sys
from typing import Any

import paths  # noqa: F401
from gpu_machine import gpu_problem, table


def decoder() -> Any:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config()).half().cuda().eval()


def calls_that_differ(model: Any, length: int, calls: int) -> tuple[int, str]:
    import torch
    from transformers import DynamicCache

    generator = torch.Generator("cuda").manual_seed(length)
    ids = torch.randint(0, 50257, (1, length + 1), device="cuda", generator=generator)
    filled = model(ids[:, :-1], use_cache=True).past_key_values
    kept = [(layer.keys.clone(), layer.values.clone()) for layer in filled.layers]

    def outputs() -> list[Any]:
        cache = DynamicCache()
        for number, (keys, values) in enumerate(kept):
            cache.update(keys, values, number)
        result = model(ids[:, -1:], past_key_values=cache, use_cache=True)
        layers = [tensor for layer in result.past_key_values.layers for tensor in (layer.keys, layer.values)]
        return [tensor.clone() for tensor in (*layers, result.logits)]

    first, differing, where = outputs(), 0, ""
    for _ in range(calls - 1):
        for number, (one, other) in enumerate(zip(outputs(), first)):
            if not torch.equal(one.view(torch.int16), other.view(torch.int16)):
                differing += 1
                where = where or (f"layer {number // 2}" if number < 2 * len(kept) else "logits")
                break
    return differing, where


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="64,100,200,255,256,257,263,270,300,400,600,800,1000")
    parser.add_argument("--calls", type=int, default=100)
    options = parser.parse_args()
    problem = gpu_problem(sys.executable)
    if problem is not None:
        print(f"skipped: {problem}")
        return 0
    import torch

    model = decoder()
    rows = [["cached tokens", f"calls of {options.calls - 1} that differ from the first", "first at"]]
    with torch.no_grad():
        for length in map(int, options.lengths.split(",")):
            differing, where = calls_that_differ(model, length, options.calls)
            rows.append([str(length), str(differing), where])
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
