"""hand_over_test.py --python INTERPRETER --grape LIBRARY: a call that is never replayed hands over to its children soon.

A model with layer drop trains on batches of many sizes, while threads of autograd's are there. In one program it reads what it
draws, so it is not another thread that drew. In another one it compares, with another outcome in most calls. In the third one
it reads a value from the GPU, and sizes come in any order. After a few calls, of whatever sizes, its layers are regions, and
replayed.
"""

import random
import sys

import replayed

STEPS, SIZES, MOST_REFUSED, MOST_LOOKS = 60, 10, 4, 8
REFUSALS = {"read": ("draws_on_host",), "compared": ("draws_otherwise", "draws_decide_otherwise"),
            "value": ("other_read_value",)}  # fmt: skip


def program(what):
    import torch
    from torch import nn

    class Layer(nn.Sequential):
        pass

    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            layers = [Layer(nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(0.1), nn.Tanh()) for _ in range(3)]
            self.layers, self.last = nn.ModuleList(layers), nn.Linear(8, 4)

        def forward(self, x):
            if what == "value":
                x = x * x.sum().item()
            for layer in self.layers:
                number = torch.rand([])
                if what == "value" or not (number.item() if what == "read" else number) < 0.2:
                    x = x + layer(x)
            return self.last(x)

    torch.manual_seed(0)
    model = Dropping().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    order = random.Random(0)
    for i in range(STEPS):
        size = order.randrange(SIZES) if what == "value" else i % SIZES
        loss = model(torch.rand(2 + size, 8, device="cuda")).square().mean()
        loss.backward()
        gradients = [p.grad.double().sum().item() for p in model.last.parameters()]
        print(i, loss.item(), *gradients, torch.rand(()).item(), flush=True)
        optimizer.step()
        optimizer.zero_grad()


def main():
    if sys.argv[1:2] == ["--program"]:
        return program(sys.argv[2])
    given = replayed.options(__doc__)
    for what in REFUSALS:
        _, regions = replayed.compare(given, __file__, ["--program", what], GRAPE_AUTOGRAD="1", GRAPE_EARLY_REGIONS="1")
        whole = next(one for one in regions if one["region"].endswith("Dropping"))
        refused = sum(reason["count"] for reason in whole["reasons"] if reason["id"] in REFUSALS[what])
        layers = sum(one["replayed"] for one in regions if one["region"].endswith("Layer"))
        print(f"{what}: {whole['observed']} looks, refused {refused} times, then {layers} calls of layers replayed")
        if what == "compared" and whole["observed"] > MOST_LOOKS:
            raise SystemExit("that it decides otherwise each time is known from calls of different sizes")
        if not 0 < refused <= MOST_REFUSED or layers == 0:
            raise SystemExit("its layers were not looked at soon")


if __name__ == "__main__":
    main()
