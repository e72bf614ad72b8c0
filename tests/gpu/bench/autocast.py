#!/usr/bin/env python3
"""Models with weights of float under torch.autocast and torch.no_grad(), plain and under GRAPE_MODE=replay: the time of a
call or a token, and whether the outputs have the same bits.

autocast.py [--processes 2] [--out build/bench]

A block of autocast for each call casts all weights each time; in a block of many calls they are cast once. Prints one row
for each way; writes autocast.txt and autocast.json to --out. Exit status: 0 measured (or no GPU), 1 outputs differ or a
process did not end well, 2 without a build.
"""

import sys
from typing import Any, Callable

from ways import Way, main

CALLS, TOKENS = 20, 50


def bert(torch: Any) -> Callable[[], Any]:
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig()).cuda().eval()
    ids = torch.randint(1000, (1, 128), device="cuda")
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return lambda: model(**inputs).last_hidden_state


def resnet(torch: Any) -> Callable[[], Any]:
    from torchvision.models import resnet50

    model, image = resnet50().cuda().eval(), torch.randn(1, 3, 224, 224, device="cuda")
    return lambda: model(image)


def gpt2(torch: Any) -> Callable[[], Any]:
    from transformers import GPT2Config, GPT2LMHeadModel

    model, ids = GPT2LMHeadModel(GPT2Config()).cuda().eval(), torch.randint(1000, (1, 8), device="cuda")
    settings = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None, "max_new_tokens": TOKENS}
    return lambda: model.generate(ids, **settings)


def way(name: str, make: Callable[[Any], Callable[[], Any]], dtype: str, blocks: int, calls: int, units: int) -> Way:
    """`blocks` blocks of autocast to `dtype`, with `calls` calls in each."""

    def begun(torch: Any) -> Callable[[], Any]:
        call = make(torch)

        def part() -> Any:
            for _ in range(blocks):
                with torch.no_grad(), torch.autocast("cuda", dtype=getattr(torch, dtype)):
                    for _ in range(calls):
                        last = call()
            return last

        return part

    return Way(name, begun, units)


WAYS = [
    way("BERT-base 1x128 fp16, a block for each call", bert, "float16", CALLS, 1, CALLS),
    way("BERT-base 1x128 fp16, 20 calls in a block", bert, "float16", 1, CALLS, CALLS),
    way("ResNet-50 batch 1 bf16, a block for each call", resnet, "bfloat16", CALLS, 1, CALLS),
    way("ResNet-50 batch 1 bf16, 20 calls in a block", resnet, "bfloat16", 1, CALLS, CALLS),
    way("GPT-2 124M fp16, generate in a block, a token", gpt2, "float16", 1, 1, TOKENS),
]

if __name__ == "__main__":
    sys.exit(main(WAYS, __file__, __doc__))
