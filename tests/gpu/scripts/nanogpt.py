#!/usr/bin/env python3
"""nanoGPT's loop, with a GPT of 6 layers and random characters: autocast in bfloat16, accumulated and clipped gradients, fused
AdamW, a cosine schedule with warm-up, and losses estimated in eval mode."""

import contextlib
import math
from typing import Any

import common
import numpy
import torch
from train_models import GPT

WORDS = 65
LEARNING_RATE, MIN_LEARNING_RATE = 1e-3, 1e-4
ACCUMULATED = 4  # micro steps


class Data:
    def __init__(self, length: int, batch: int) -> None:
        draws = numpy.random.default_rng(1)
        self.parts = {
            name: draws.integers(0, WORDS, size, dtype=numpy.uint16) for name, size in (("train", 1 << 20), ("val", 1 << 16))
        }
        self.length, self.batch = length, batch

    def get_batch(self, split: str) -> tuple[torch.Tensor, torch.Tensor]:
        data, length = self.parts[split], self.length
        places = torch.randint(len(data) - length, (self.batch,))
        x = torch.stack([torch.from_numpy(data[i : i + length].astype(numpy.int64)) for i in places])
        y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + length].astype(numpy.int64)) for i in places])
        return x.pin_memory().to("cuda", non_blocking=True), y.pin_memory().to("cuda", non_blocking=True)


@torch.no_grad()
def estimate_loss(model: GPT, data: Data, autocast: Any, batches: int) -> dict[str, float]:
    found = {}
    model.eval()
    for split in ("train", "val"):
        losses = torch.zeros(batches)
        for k in range(batches):
            x, y = data.get_batch(split)
            with autocast:
                loss = model(x, y)
            losses[k] = loss.item()
        found[split] = losses.mean().item()
    model.train()
    return found


def make_optimizer(model: GPT) -> torch.optim.AdamW:
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [{"params": [p for p in weights if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in weights if p.dim() < 2], "weight_decay": 0.0}]  # fmt: skip
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.99), fused=True)


def learning_rate(step: int, steps: int) -> float:
    warm = min(100, steps // 3)
    if step < warm:
        return LEARNING_RATE * (step + 1) / (warm + 1)
    share = 0.5 * (1.0 + math.cos(math.pi * (step - warm) / (steps - warm)))
    return MIN_LEARNING_RATE + share * (LEARNING_RATE - MIN_LEARNING_RATE)


def train(options: Any, watch: common.Watch, model: GPT, optimizer: torch.optim.AdamW, data: Data, autocast: Any) -> list[float]:
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    estimates: list[float] = []
    x, y = data.get_batch("train")
    watch.start()
    for step in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, options.steps)
        if step % max(2, options.steps // 5) == 0:
            estimates += estimate_loss(model, data, autocast, 2 if options.small else 10).values()
        for _ in range(ACCUMULATED):
            with autocast:
                loss = model(x, y) / ACCUMULATED
            x, y = data.get_batch("train")  # while the GPU computes
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        watch.step(loss)
    return estimates


def main() -> None:
    options = common.options(__doc__)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    length, layers, heads, width, batch = (16, 2, 2, 32, 2) if options.small else (256, 6, 6, 384, 16)
    model = GPT(WORDS, length, layers, heads, width, dropout=0.2).to("cuda")
    optimizer = make_optimizer(model)
    autocast: contextlib.AbstractContextManager = torch.autocast("cuda", dtype=torch.bfloat16)
    watch = common.Watch(options.steps)
    estimates = train(options, watch, model, optimizer, Data(length, batch), autocast)
    common.finish(watch, {"model": model}, [optimizer], estimates)


if __name__ == "__main__":
    main()
