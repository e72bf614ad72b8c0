"""training_memory_test.py --python INTERPRETER --grape LIBRARY: what a replayed training step needs of the device's memory.

Nets train plain and under Grape, one of them on batches of many sizes. Losses are equal, and the peak of a step's memory once
all is replayed is at most MOST times plain's, or MOST_OF_SMALL where that is small. A large net that is gone leaves nothing.
"""

import sys

import replayed

STEPS, LAST, SIZES = 72, 16, 6
MOST, MOST_OF_SMALL, SMALL = 1.1, 1.2, 8 << 20
PROGRAMS = ("perceptron", "attention", "attention_in_bfloat16", "convolutions", "many_sizes", "after_a_large_one", "held_result")


def program(name):
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.before, self.after, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
            self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            batch, length, width = x.shape
            parts = self.mix(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            weights = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
            return x + self.body(self.after(x))

    def attention(blocks=4):
        return nn.Sequential(nn.Linear(64, 128), *(Block(128, 4) for _ in range(blocks)), nn.Linear(128, 64))

    def perceptron():
        return nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64))

    def convolutions():
        layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 32 * 32, 10))

    class Spoken(nn.Module):
        """Two results, of which one is in no loss."""

        def __init__(self):
            super().__init__()
            self.net = attention()

        def forward(self, x):
            scores = self.net(x)
            return scores, scores.softmax(-1)

    held = []  # results, until the next step's are there

    def loss_of(model, x):
        out = model(x)
        if isinstance(out, tuple):
            held[:] = out
            out = out[0]
        return out.float().square().mean()

    def train(model, shape_of, steps):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
        peak = 0
        for i in range(steps):
            x = torch.randn(shape_of(i)).cuda()
            torch.cuda.reset_peak_memory_stats()
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=name.endswith("bfloat16")):
                loss = loss_of(model, x)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(i, loss.item(), flush=True)
            if i >= steps - LAST:
                peak = max(peak, torch.cuda.max_memory_allocated())
        return peak

    nets = {"perceptron": perceptron, "convolutions": convolutions, "after_a_large_one": perceptron, "held_result": Spoken}
    shapes = {"perceptron": (512, 64), "convolutions": (8, 3, 32, 32), "after_a_large_one": (512, 64)}
    torch.manual_seed(0)
    if name == "after_a_large_one":
        train(attention(2).cuda(), lambda i: (16, 96, 64), STEPS // 4)
    shape = shapes.get(name, (8, 64, 64))
    model = nets.get(name, attention)().cuda()
    peak = train(model, (lambda i: (4, 32 + 8 * (i % SIZES), 64)) if name == "many_sizes" else lambda i: shape, STEPS)
    print(f"peak {peak}", file=sys.stderr, flush=True)


def peak_of(done):
    return int(done.stderr.split("peak ")[-1])


def main():
    if sys.argv[1:2] == ["--program"]:
        return program(sys.argv[2])
    given = replayed.options(__doc__)
    too_much = []
    for name in PROGRAMS:
        command = [given.python, __file__, "--program", name]
        plain = replayed.process(command)
        settings = {"LD_PRELOAD": given.grape, "GRAPE_MODE": "replay", "GRAPE_EARLY_REGIONS": "1"}
        under_grape = replayed.process(command, settings)
        if under_grape.stdout != plain.stdout:
            raise SystemExit(f"{name}: not all losses are as in the plain run")
        calls = sum(region["replayed"] for region in under_grape.regions)
        ratio = peak_of(under_grape) / peak_of(plain)
        print(f"{name}: {peak_of(plain)} bytes, {ratio:.3f} of that under Grape, {calls} calls replayed", flush=True)
        if ratio > (MOST_OF_SMALL if peak_of(plain) < SMALL else MOST) or calls < LAST:
            too_much.append(name)
    if too_much:
        raise SystemExit(f"too much memory, or not replayed: {', '.join(too_much)}")


if __name__ == "__main__":
    main()
