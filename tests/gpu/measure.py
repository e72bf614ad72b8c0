#!/usr/bin/env python3
"""Times GPT-2 (124M, fp16) greedy generation, or a tiny operator, in this process, and prints one JSON line.

measure.py generate [--tokens N] [--repeats N] [--busy]     ms a token: median over repeats, and GPU busy time
measure.py operator [--depth N]                             ns for one in-place addition, N Python frames deep
measure.py long --tokens N                                  one generation, for the size of its trace
"""

import argparse
import json
import statistics
import time
from typing import Any

import torch


def load_gpt2() -> tuple[Any, torch.Tensor]:
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).half().cuda().eval()
    model.generation_config.eos_token_id = None
    return model, torch.randint(0, 50000, (1, 16)).cuda()


def generate(model: Any, prompt: torch.Tensor, tokens: int) -> float:
    """Seconds for one greedy generation."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    model.generate(
        prompt, attention_mask=torch.ones_like(prompt), pad_token_id=50256, do_sample=False, max_new_tokens=tokens
    )
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def gpu_busy_ms(model: Any, prompt: torch.Tensor, tokens: int) -> float:
    """Milliseconds a token in which at least one kernel, copy or memset ran, as the profiler saw them."""
    from profiled import chrome_events  # noqa: PLC0415

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        generate(model, prompt, tokens)
    events, _ = chrome_events(profiler)
    spans = sorted(
        (e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    )
    busy, end = 0.0, float("-inf")
    for begin, finish in spans:
        busy += max(0.0, finish - max(begin, end))
        end = max(end, finish)
    return busy / 1000 / tokens


def measure_generate(options: argparse.Namespace) -> dict[str, Any]:
    model, prompt = load_gpt2()
    for _ in range(2):
        generate(model, prompt, options.tokens)
    times = [generate(model, prompt, options.tokens) * 1000 / options.tokens for _ in range(options.repeats)]
    result = {"median_ms": statistics.median(times), "min_ms": min(times), "max_ms": max(times)}
    if options.busy:
        result["gpu_busy_ms"] = gpu_busy_ms(model, prompt, options.tokens)
    return result


def measure_operator(options: argparse.Namespace) -> dict[str, Any]:
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
    return {"min_ns": min(times), "median_ns": statistics.median(times)}


def measure_long(options: argparse.Namespace) -> dict[str, Any]:
    model, prompt = load_gpt2()
    seconds = generate(model, prompt, options.tokens)
    return {"tokens": options.tokens, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("generate", "operator", "long"))
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--depth", type=int, default=25)
    parser.add_argument("--busy", action="store_true", help="measure the GPU's busy time as well")
    options = parser.parse_args()
    actions = {"generate": measure_generate, "operator": measure_operator, "long": measure_long}
    print(json.dumps(actions[options.what](options)))


if __name__ == "__main__":
    main()
