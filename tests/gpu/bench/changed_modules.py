#!/usr/bin/env python3
"""Modules that their own calls change, plain and under GRAPE_MODE=replay: the time of a call, and whether the outputs have
the same bits.

changed_modules.py [--processes 2] [--out build/bench]

A vocoder's generator whose weights a hook computes for each call (torch.nn.utils.weight_norm) or that has them computed by
a parametrization; an encoder whose blocks keep their last attention map; a model that replaces a buffer (a moving average).
What they keep is part of what is compared. Prints one row for each; writes changed_modules.txt and changed_modules.json to
--out. Exit status: 0 measured (or no GPU), 1 outputs differ or a process did not end well, 2 without a build.
"""

import sys
import warnings
from typing import Any, Callable, Optional

from ways import Way, main

CALLS = 20


def generator(torch: Any, normed: Callable[[Any], Any]) -> Any:
    """Of the shape of HiFi-GAN's small one: four steps of upsampling, three residual blocks behind each."""
    nn = torch.nn

    class Residual(nn.Module):
        def __init__(self, channels: int, kernel: int) -> None:
            super().__init__()
            wide = [(1, 1), (3, 1), (5, 1)]
            self.layers = nn.ModuleList(
                nn.ModuleList(
                    normed(nn.Conv1d(channels, channels, kernel, dilation=d, padding=(kernel * d - d) // 2)) for d in pair
                )
                for pair in wide
            )

        def forward(self, x: Any) -> Any:
            for first, second in self.layers:
                x = x + second(nn.functional.leaky_relu(first(nn.functional.leaky_relu(x, 0.1)), 0.1))
            return x

    class Generator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = normed(nn.Conv1d(80, 128, 7, padding=3))
            self.up, self.blocks, channels = nn.ModuleList(), nn.ModuleList(), 128
            for rate, kernel in ((8, 16), (8, 16), (2, 4), (2, 4)):
                self.up.append(normed(nn.ConvTranspose1d(channels, channels // 2, kernel, rate, padding=(kernel - rate) // 2)))
                channels //= 2
                self.blocks.append(nn.ModuleList(Residual(channels, size) for size in (3, 7, 11)))
            self.last = normed(nn.Conv1d(channels, 1, 7, padding=3))

        def forward(self, mel: Any) -> Any:
            x = self.first(mel)
            for up, blocks in zip(self.up, self.blocks):
                x = up(nn.functional.leaky_relu(x, 0.1))
                x = sum(block(x) for block in blocks) / len(blocks)
            return torch.tanh(self.last(nn.functional.leaky_relu(x)))

    return Generator()


def vocoder(normed: Callable[[Any, Any], Any]) -> Callable[[Any], Callable[[], Any]]:
    def make(torch: Any) -> Callable[[], Any]:
        warnings.simplefilter("ignore", FutureWarning)  # torch.nn.utils.weight_norm is deprecated, and in use everywhere
        model = generator(torch, lambda layer: normed(torch, layer)).cuda().eval()
        mel = torch.randn(1, 80, 32, device="cuda")
        return lambda: model(mel)

    return make


def encoder(torch: Any) -> Callable[[], Any]:
    nn, width = torch.nn, 256

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
            self.wide = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            self.map: Optional[Any] = None

        def forward(self, x: Any) -> Any:
            y = self.norm(x)
            y, self.map = self.attention(y, y, y)
            return x + y + self.wide(x)

    model, x = nn.Sequential(*(Block() for _ in range(8))).cuda().eval(), torch.randn(2, 64, width, device="cuda")

    def call() -> Any:
        result = model(x)
        return result.mean() + sum(block.map[0, 0].sum() for block in model)

    return call


def average(torch: Any) -> Callable[[], Any]:
    nn = torch.nn

    class Averaged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(12))
            self.register_buffer("mean", torch.zeros(256))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = torch.relu(layer(x)) + 0.1 * x
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            return x - self.mean

    model, x = Averaged().cuda().eval(), torch.randn(32, 256, device="cuda")
    return lambda: model(x)


def way(name: str, make: Callable[[Any], Callable[[], Any]]) -> Way:
    def begun(torch: Any) -> Callable[[], Any]:
        call = make(torch)

        def part() -> Any:
            with torch.no_grad():
                for _ in range(CALLS):
                    last = call()
            return last

        return part

    return Way(name, begun, CALLS)


WAYS = [
    way("vocoder, weight_norm by its hook", vocoder(lambda torch, layer: torch.nn.utils.weight_norm(layer))),
    way(
        "vocoder, weight_norm as a parametrization",
        vocoder(lambda torch, layer: torch.nn.utils.parametrizations.weight_norm(layer)),
    ),
    way("vocoder, plain weights", vocoder(lambda torch, layer: layer)),
    way("encoder that keeps its attention maps", encoder),
    way("layers with a replaced buffer", average),
]

if __name__ == "__main__":
    sys.exit(main(WAYS, __file__, __doc__))
