#!/usr/bin/env python3
"""One model in a plain loop: milliseconds a call, and a digest of every call's outputs. Prints one JSON line.

speed.py WORKLOAD [--calls N] [--rounds N] [--how plain|graph|compile] [--busy] [--serve]

A round is N calls (tokens, for `generate`; steps, of a training) between two synchronisations. `graph` is what one writes by
hand with torch.cuda.graph (by_hand.py: nothing that draws samples or searches beams), `compile` is
torch.compile(mode="reduce-overhead"), in `generate` with a static cache. Neither goes with a training. The first round is
reported on its own (`first_ms`), the median is over all but the first three. `busy_ms`: GPU time a call, by
torch.profiler. With --serve a round is run for each line on standard input, and answered by its milliseconds a call; at
the input's end comes the JSON line.
"""

import argparse
import hashlib
import json
import random
import statistics
import sys
import time
import traceback
from typing import Any, Callable, Optional

import torch

import by_hand
from training import TRAINING

Step = Callable[[int], Any]  # the number of the call within its round → what the model returned


def resnet50() -> tuple[Any, tuple[Any, ...]]:
    import torchvision  # noqa: PLC0415

    return torchvision.models.resnet50(weights=None).cuda().eval(), (torch.randn(1, 3, 224, 224).cuda(),)


def vit() -> tuple[Any, tuple[Any, ...]]:
    import torchvision  # noqa: PLC0415

    model = torchvision.models.vit_b_16(weights=None).cuda().eval().half()
    torch.nn.init.normal_(model.heads[0].weight, std=0.02)
    return model, (torch.randn(1, 3, 224, 224).cuda().half(),)


def bert() -> tuple[Any, tuple[Any, ...]]:
    from transformers import BertConfig, BertModel  # noqa: PLC0415

    return BertModel(BertConfig()).cuda().eval().half(), (torch.randint(0, 1000, (1, 128)).cuda(),)


def gpt2_dropout() -> tuple[Any, tuple[Any, ...]]:
    """Dropout left on, as a user forgets it, or wants it: every call draws random numbers."""
    return gpt2().train(), (torch.randint(0, 50000, (1, 64)).cuda(),)


MODELS = {"resnet50": resnet50, "vit": vit, "bert": bert, "gpt2_dropout": gpt2_dropout}


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415

    return GPT2LMHeadModel(GPT2Config()).half().cuda()


def gptj() -> Any:
    """6 billion parameters, made on the GPU in half precision: 12 GB for each process."""
    from transformers import AutoModelForCausalLM, GPTJConfig  # noqa: PLC0415

    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(GPTJConfig(), dtype=torch.float16)


def t5() -> Any:
    from transformers import T5Config, T5ForConditionalGeneration  # noqa: PLC0415

    return T5ForConditionalGeneration(T5Config(decoder_start_token_id=0)).to(torch.bfloat16).cuda()


# The model, and what its `generate` is told besides.
GENERATORS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "gpt2": (gpt2, {"pad_token_id": 50256, "do_sample": False}),
    "gpt2_beams": (gpt2, {"pad_token_id": 50256, "do_sample": False, "num_beams": 5}),
    "gpt2_sample": (gpt2, {"pad_token_id": 50256, "do_sample": True, "top_k": 50}),
    "gptj": (gptj, {"pad_token_id": 50256, "do_sample": False}),
    "t5": (t5, {"pad_token_id": 0, "do_sample": False}),
}
WAV2VEC2 = "wav2vec2"
WORKLOADS = [*MODELS, *GENERATORS, WAV2VEC2, *TRAINING]


def digest_of(value: Any, digest: "hashlib._Hash") -> None:
    if isinstance(value, torch.Tensor):
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, dict):
        for key in value:
            digest_of(value[key], digest)
    elif isinstance(value, (list, tuple)):
        for part in value:
            digest_of(part, digest)


def model_step(name: str, how: str) -> Step:
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    with torch.no_grad():
        if how == "graph":
            return by_hand.loop(model, inputs)
    called = torch.compile(model, mode="reduce-overhead") if how == "compile" else model

    def step(_: int) -> Any:
        with torch.no_grad():
            output = called(*inputs)
        # The next call of a compiled model overwrites its output: there is nothing to keep.
        return None if how == "compile" else output

    return step


def generate_round(name: str, how: str, calls: int) -> Callable[[], list[Any]]:
    torch.manual_seed(0)
    build, settings = GENERATORS[name]
    model = build().eval()
    model.generation_config.eos_token_id = None
    prompt = torch.randint(0, min(50000, model.config.vocab_size), (1, 16)).cuda()
    mask = torch.ones_like(prompt)
    if how == "graph":
        greedy = by_hand.Greedy(model, prompt, calls)
        return lambda: [greedy.generate()]
    if how == "compile":
        # With a cache of fixed size Transformers compiles the forward itself, in mode reduce-overhead.
        settings = {**settings, "cache_implementation": "static"}

    def run() -> list[Any]:
        return [model.generate(prompt, attention_mask=mask, max_new_tokens=calls, **settings)]

    return run


def wav2vec2_step(how: str) -> Step:
    """Clips of 0.5 to 2.95 seconds: each call takes one of 50 lengths at random."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC  # noqa: PLC0415

    torch.manual_seed(0)
    model = Wav2Vec2ForCTC(Wav2Vec2Config()).half().cuda().eval()
    clips = [torch.randn(1, 8000 + 800 * i).half().cuda() for i in range(50)]
    choice = random.Random(0)
    if how == "graph":
        with torch.no_grad():
            return by_hand.by_length(model, clips, lambda: choice.randrange(len(clips)))
    called = torch.compile(model, mode="reduce-overhead") if how == "compile" else model

    def step(_: int) -> Any:
        with torch.no_grad():
            output = called(clips[choice.randrange(len(clips))])
        return None if how == "compile" else output

    return step


def round_of(name: str, how: str, calls: int) -> Callable[[], list[Any]]:
    if name in GENERATORS:
        return generate_round(name, how, calls)
    if name in TRAINING:
        step = TRAINING[name]()
    else:
        step = wav2vec2_step(how) if name == WAV2VEC2 else model_step(name, how)
    return loop_round(step, calls)


def loop_round(step: Step, calls: int) -> Callable[[], list[Any]]:
    return lambda: [step(i) for i in range(calls)]


def gpu_busy_ms(run: Callable[[], list[Any]], calls: int) -> float:
    from profiled import chrome_events  # noqa: PLC0415

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    events, _ = chrome_events(profiler)
    busy, end = 0.0, float("-inf")
    for event in sorted(
        (e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")), key=lambda e: e["ts"]
    ):
        finish = event["ts"] + event["dur"]
        busy += max(0.0, finish - max(event["ts"], end))
        end = max(end, finish)
    return busy / 1000 / calls


def busy_or_none(run: Callable[[], list[Any]], calls: int) -> Optional[float]:
    """None, and why on stderr, where the profiler does not work: what was timed before counts all the same."""
    try:
        return gpu_busy_ms(run, calls)
    except Exception:  # whatever the profiler raises
        traceback.print_exc()
        return None


def device_memory() -> dict[str, float]:
    """MiB now: of the allocator's blocks in use, of all that it reserved, and of the device besides (contexts, modules,
    graphs; other processes too)."""
    free, total = torch.cuda.mem_get_info()
    reserved = torch.cuda.memory_reserved()
    sizes = {"allocated": torch.cuda.memory_allocated(), "reserved": reserved, "outside": total - free - reserved}
    return {f"{name}_mib": round(size / 2**20, 1) for name, size in sizes.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--how", choices=["plain", "graph", "compile"], default="plain")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    run = round_of(options.workload, options.how, options.calls)
    digest, times = hashlib.sha256(), []
    for _ in sys.stdin if options.serve else range(options.rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        results = run()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1000 / options.calls)
        for result in results:
            digest_of(result, digest)
        del results
        if options.serve:
            print(times[-1], flush=True)
    print(
        json.dumps(
            {
                "workload": options.workload,
                "how": options.how,
                "first_ms": times[0] if times else None,
                "rounds_ms": times,
                "median_ms": statistics.median(times[3:] or times or [0.0]),
                "digest": digest.hexdigest()[:16],
                "memory_mib": torch.cuda.max_memory_allocated() >> 20,
                **device_memory(),
                **({"busy_ms": busy_or_none(run, options.calls)} if options.busy else {}),
            }
        )
    )


if __name__ == "__main__":
    main()
