#!/usr/bin/env python3
"""Models with weights of float under torch.autocast and torch.no_grad(), plain and under GRAPE_MODE=replay: the time of a
call or a token, and whether the outputs have the same bits.

autocast.py [--processes 2] [--out build/bench]

A block of autocast for each call casts all weights each time; in a block of many calls they are cast once. Prints one row
for each way; writes autocast.txt and autocast.json to --out. Exit status: 0 measured (or no GPU), 1 outputs differ or a
process did not end well, 2 without a build.
"""

import argparse
import hashlib
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable

from gpu_machine import Measurement, add_options, environment, json_line, replaying, run, show, table, with_build

WARM, MEASURED, CALLS, TOKENS = 6, 7, 20, 50


class Bert:
    def __init__(self, torch: Any) -> None:
        from transformers import BertConfig, BertModel

        self.model = BertModel(BertConfig()).cuda().eval()
        ids = torch.randint(1000, (1, 128), device="cuda")
        self.inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def __call__(self) -> Any:
        return self.model(**self.inputs).last_hidden_state


class Resnet:
    def __init__(self, torch: Any) -> None:
        from torchvision.models import resnet50

        self.model, self.image = resnet50().cuda().eval(), torch.randn(1, 3, 224, 224, device="cuda")

    def __call__(self) -> Any:
        return self.model(self.image)


class Gpt2:
    def __init__(self, torch: Any) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        self.model, self.ids = GPT2LMHeadModel(GPT2Config()).cuda().eval(), torch.randint(1000, (1, 8), device="cuda")

    def __call__(self) -> Any:
        settings = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None, "max_new_tokens": TOKENS}
        return self.model.generate(self.ids, **settings)


def ms(part: Callable[[], Any], units: int, torch: Any) -> float:
    for _ in range(WARM):
        part()
    times = []
    for _ in range(MEASURED):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        part()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3 / units)
    return statistics.median(times)


def program() -> None:
    import torch

    result: dict[str, Any] = {}

    def measure(name: str, make: Any, dtype: Any, blocks: int, calls: int, units: int) -> None:
        torch.manual_seed(0)
        call = make(torch)

        def part() -> Any:
            for _ in range(blocks):
                with torch.no_grad(), torch.autocast("cuda", dtype=dtype):
                    for _ in range(calls):
                        last = call()
            return last

        took = ms(part, units, torch)
        digest = hashlib.sha256(part().float().cpu().numpy().tobytes()).hexdigest()
        result[name] = {"ms": took, "digest": digest}

    measure("BERT-base 1x128 fp16, a block for each call", Bert, torch.float16, CALLS, 1, CALLS)
    measure("BERT-base 1x128 fp16, 20 calls in a block", Bert, torch.float16, 1, CALLS, CALLS)
    measure("ResNet-50 batch 1 bf16, a block for each call", Resnet, torch.bfloat16, CALLS, 1, CALLS)
    measure("ResNet-50 batch 1 bf16, 20 calls in a block", Resnet, torch.bfloat16, 1, CALLS, CALLS)
    measure("GPT-2 124M fp16, generate in a block, a token", Gpt2, torch.float16, 1, 1, TOKENS)
    print(json.dumps(result))


def compare(measurement: Measurement) -> int:
    command = [measurement.options.python, str(Path(__file__).resolve()), "--program"]
    settings = {"plain": environment(), "replay": replaying(measurement.build, measurement.scratch / "report.json")}
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in settings}
    for _ in range(measurement.options.processes):
        for kind, env in settings.items():
            done = run(command, env, max(measurement.left(), 1))
            answer = json_line(done.stdout)
            if done.status != 0 or answer is None:
                print(f"{kind}: exit status {done.status}\n{done.stderr[-2000:]}")
                return 1
            found[kind].append(answer)
    rows, same = [["ms a call", "plain", "replay", "gain", "outputs"]], True
    for name in found["plain"][0]:
        plain, replay = (statistics.median(one[name]["ms"] for one in found[kind]) for kind in settings)
        equal = len({one[name]["digest"] for kind in settings for one in found[kind]}) == 1
        same = same and equal
        rows.append([name, show(plain), show(replay), show(plain / replay, 1), "equal" if equal else "differ"])
    measurement.results = found
    measurement.write("autocast", table(rows) + "\n")
    print(table(rows))
    return 0 if same else 1


def main() -> int:
    if sys.argv[1:] == ["--program"]:
        program()
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, 400)
    parser.add_argument("--processes", type=int, default=2, help="of each kind, in turns")
    options = parser.parse_args()
    return with_build(options, lambda build, scratch: compare(Measurement(options, build, scratch)))


if __name__ == "__main__":
    sys.exit(main())
