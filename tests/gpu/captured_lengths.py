#!/usr/bin/env python3
"""A program that captures GPT-2's decoding by hand: one CUDA graph for each length, all in one pool of memory.

captured_lengths.py [--lengths 1000] [--rounds 3] [--layers 12] [--cudnn]

The keys and values of all positions lie in fixed memory. The graph of length L reads those of the positions before L,
computes the logits of the token at L, and writes its keys and values. Nothing here knows of Grape. The last line is a
JSON object; memory in bytes, times in microseconds:
  graphs_device       device memory that the graphs took besides what PyTorch's allocator holds; after all are captured
  graphs_device_used  the same, after each was launched
  graphs_host         growth of the process's resident memory by capturing
  in_order, at_random time of a replay, by round: the host waits for each; at random it is another order in each round
  free_running        the same in order, where it waits once, at the end
  digest              SHA-256 of all logits, of two rounds in order: `repeats` if both are the same
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

WARM_CALLS = 2


def resident() -> int:
    """Bytes of the process's memory that are in use."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024


class Decoder:
    """GPT-2 with random weights, its cache in fixed memory, and one token at a time."""

    def __init__(self, lengths: int, layers: int, device: str, dtype: torch.dtype) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415

        torch.manual_seed(0)
        config = GPT2Config(n_layer=layers, n_positions=lengths + 1)
        self.model = GPT2LMHeadModel(config).to(device, dtype).eval()
        shape = (1, config.n_head, lengths + 1, config.n_embd // config.n_head)
        self.keys = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(layers)]
        self.values = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(layers)]
        self.token = torch.full((1, 1), 17, device=device)
        self.logits = torch.zeros((1, config.vocab_size), device=device, dtype=dtype)

    def forget(self) -> None:
        generator = torch.Generator(device=self.token.device).manual_seed(1)
        for tensor in (*self.keys, *self.values):
            tensor.normal_(generator=generator)

    def step(self, length: int) -> None:
        """The token at position `length` - 1."""
        from transformers import DynamicCache  # noqa: PLC0415

        cache = DynamicCache()
        if length > 1:
            for layer, (keys, values) in enumerate(zip(self.keys, self.values)):
                cache.update(keys[:, :, : length - 1], values[:, :, : length - 1], layer)
        outputs = self.model(self.token, past_key_values=cache, use_cache=True)
        self.logits.copy_(outputs.logits[:, -1])
        for layer, (keys, values) in enumerate(zip(self.keys, self.values)):
            keys[:, :, length - 1].copy_(cache.layers[layer].keys[:, :, -1])
            values[:, :, length - 1].copy_(cache.layers[layer].values[:, :, -1])


def capture(decoder: Decoder, lengths: int) -> list[torch.cuda.CUDAGraph]:
    graphs: list[torch.cuda.CUDAGraph] = []
    for length in range(1, lengths + 1):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=graphs[0].pool() if graphs else None):
            decoder.step(length)
        graphs.append(graph)
    return graphs


def warm_up(decoder: Decoder, lengths: int) -> None:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_CALLS):
            for length in range(1, lengths + 1):
                decoder.step(length)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def device_memory() -> int:
    """Bytes in use on the device that are not PyTorch's allocator's."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def timed(graphs: list[torch.cuda.CUDAGraph], order: list[int], wait: bool) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for index in order:
        graphs[index].replay()
        if wait:
            torch.cuda.current_stream().synchronize()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / len(order) * 1e6


def digest(decoder: Decoder, graphs: list[torch.cuda.CUDAGraph], order: list[int]) -> str:
    decoder.forget()
    result = hashlib.sha256()
    for index in order:
        graphs[index].replay()
        result.update(decoder.logits.cpu().view(torch.uint8).numpy().tobytes())
    return result.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--cudnn", action="store_true", help="let PyTorch choose cuDNN's attention, which gives other bits each time")
    options = parser.parse_args()
    torch.backends.cuda.enable_cudnn_sdp(options.cudnn)
    with torch.no_grad():
        decoder = Decoder(options.lengths, options.layers, "cuda", torch.float16)
        warm_up(decoder, options.lengths)
        decoder.forget()
        device, host, begin = device_memory(), resident(), time.perf_counter()
        graphs = capture(decoder, options.lengths)
        summary: dict[str, Any] = {
            "lengths": options.lengths,
            "capture_seconds": time.perf_counter() - begin,
            "graphs_device": device_memory() - device,
            "graphs_host": resident() - host,
        }
        in_order = list(range(options.lengths))
        mixed = random.Random(3).sample(in_order, len(in_order))
        digests = [digest(decoder, graphs, in_order) for _ in range(2)]
        summary["digest"], summary["repeats"] = digests[0], digests[0] == digests[1]
        summary["digest_random"] = digest(decoder, graphs, mixed)
        summary["graphs_device_used"] = device_memory() - device
        summary["in_order"] = [timed(graphs, in_order, True) for _ in range(options.rounds)]
        orders = [random.Random(4 + i).sample(in_order, len(in_order)) for i in range(options.rounds)]
        summary["at_random"] = [timed(graphs, order, True) for order in orders]
        summary["free_running"] = [timed(graphs, in_order, False) for _ in range(options.rounds)]
        summary["graphs_host_used"] = resident() - host
        begin = time.perf_counter()
        graphs.clear()
        torch.cuda.synchronize()
        summary["destroy_seconds"] = time.perf_counter() - begin
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
