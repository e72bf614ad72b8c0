#!/usr/bin/env python3
"""A program that has many CUDA graphs of one model: one for each length of its inputs, or for each batch size.

captured_lengths.py [--workload gpt2|wav2vec2|gptj|compile] [--lengths N] [--rounds 3] [--layers N] [--cudnn]

  gpt2, gptj  a token of decoding, captured by hand, in one pool of memory; the keys and values of all positions lie in
              fixed memory. The graph of length L reads those of the positions before L, computes the logits of the token
              at L, and writes its keys and values
  wav2vec2    the encoder on clips of so many lengths, captured by hand in the same way
  compile     an encoder under torch.compile(mode="reduce-overhead"), called with so many batch sizes
See captured_workloads.py. Nothing here knows of Grape. The last line is a JSON object; memory in bytes, times in
microseconds:
  warm_up_seconds     time of the calls before any is captured, for `compile` with compiling
  graphs_device       device memory that the graphs took besides what PyTorch's allocator holds; after all are captured
  graphs_device_used  the same, after each was launched
  graphs_host         growth of the process's resident memory by capturing
  in_order, at_random time of a replay, for `compile` of a call, by round: the host waits for each; at random it is
                      another order in each round
  free_running        the same in order, where it waits once, at the end
  digest              SHA-256 of all outputs, of two rounds in order: `repeats` if both are the same
  digest_random       the same of one at random

Exit status: 0 done, 2 usage.
"""

import argparse
import hashlib
import json
import random
import time
from typing import Any

import torch

from captured_workloads import WORKLOADS, Workload


def resident() -> int:
    """Bytes of the process's memory that are in use."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024


def device_memory() -> int:
    """Bytes in use on the device that are not PyTorch's allocator's."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def timed(workload: Workload, order: list[int], wait: bool) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for index in order:
        workload.launch(index)
        if wait:
            torch.cuda.current_stream().synchronize()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / len(order) * 1e6


def digest(workload: Workload, order: list[int]) -> str:
    workload.forget()
    result = hashlib.sha256()
    for index in order:
        workload.launch(index)
        result.update(workload.output(index).cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return result.hexdigest()


def measured(workload: Workload, lengths: int, rounds: int) -> dict[str, Any]:
    begin = time.perf_counter()
    workload.warm_up()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    summary: dict[str, Any] = {"lengths": lengths, "warm_up_seconds": time.perf_counter() - begin}
    workload.forget()
    device, host, begin = device_memory(), resident(), time.perf_counter()
    workload.capture()
    summary["capture_seconds"] = time.perf_counter() - begin
    summary["graphs_device"] = device_memory() - device
    summary["graphs_host"] = resident() - host
    in_order = list(range(lengths))
    mixed = random.Random(3).sample(in_order, len(in_order))
    digests = [digest(workload, in_order) for _ in range(2)]
    summary["digest"], summary["repeats"] = digests[0], digests[0] == digests[1]
    summary["digest_random"] = digest(workload, mixed)
    summary["graphs_device_used"] = device_memory() - device
    summary["in_order"] = [timed(workload, in_order, True) for _ in range(rounds)]
    orders = [random.Random(4 + i).sample(in_order, len(in_order)) for i in range(rounds)]
    summary["at_random"] = [timed(workload, order, True) for order in orders]
    summary["free_running"] = [timed(workload, in_order, False) for _ in range(rounds)]
    summary["graphs_host_used"] = resident() - host
    begin = time.perf_counter()
    workload.release()
    torch.cuda.synchronize()
    summary["destroy_seconds"] = time.perf_counter() - begin
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=WORKLOADS, default="gpt2")
    parser.add_argument("--lengths", type=int, help="how many; default 1000, 100, 64 and 20")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, help="of the model; default 12, 12, 28 and 4")
    parser.add_argument("--cudnn", action="store_true", help="let PyTorch choose cuDNN's attention, which gives other bits each time")
    options = parser.parse_args()
    torch.backends.cuda.enable_cudnn_sdp(options.cudnn)
    kind = WORKLOADS[options.workload]
    lengths = options.lengths or kind.SIZES
    with torch.no_grad():
        workload = kind(lengths, options.layers or kind.LAYERS, "cuda", torch.float16)
        summary = measured(workload, lengths, options.rounds)
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
