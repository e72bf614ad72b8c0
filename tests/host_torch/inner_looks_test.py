"""inner_looks_test.py --python INTERPRETER --grape LIBRARY: modules inside of a model that is not replayed as a whole cost no
more looks than can be of use, and those that pay are replayed.

The model looks at a number that it draws on the host, as layer drop does. Its linear layers launch too little for passes of
their own: that is known without a look. Of many layers that are refused some are looked at, and not all. Its blocks are replayed,
those as well whose first look ends because autocast casts their weights: that says nothing of the others.
"""

import sys

import replayed

LAYERS, STEPS, GROUPS = 12, 160, 4


def train():
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(8, 8)

        def forward(self, x):
            for _ in range(6):
                x = torch.tanh(self.lin(x) * 0.9)
            return x

    class Refused(Block):
        def forward(self, x):
            x = super().forward(x)
            return x + 1 if torch.rand(()).item() < 2 else x

    class Cast(Block):
        pass

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 8)
            self.refused = nn.ModuleList(Refused() for _ in range(LAYERS))
            self.blocks = nn.ModuleList(Block() for _ in range(2))
            self.cast = nn.ModuleList(Cast() for _ in range(LAYERS))

        def forward(self, x, turn):
            x = self.first(x)
            for layer in self.refused:
                x = layer(x)
            for block in self.blocks:
                x = block(x)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                for block in self.cast[turn % GROUPS :: GROUPS]:
                    x = block(x)
            return x if torch.rand(()).item() < 2 else -x

    torch.manual_seed(0)
    model = Model().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x = torch.randn(4, 8, device="cuda")
    for turn in range(STEPS):
        optimizer.zero_grad()
        loss = model(x, turn).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item())


def main():
    if sys.argv[1:2] == ["--program"]:
        return train()
    _, regions = replayed.compare(replayed.options(__doc__), __file__, ["--program"])
    of = {}
    for region in regions:
        of.setdefault(region["region"].replace(":", ".").split(".")[-1], []).append(region)
    for name, some in of.items():
        print(name, len(some), "regions,", sum(one["observed"] for one in some), "looks,", sum(one["replayed"] for one in some), "replays")
    reasons = {reason["id"] for region in of["Linear"] for reason in region["reasons"]}
    assert "small_under_autograd" in reasons, reasons
    assert not any(region["observed"] for region in of["Linear"]), "what it launches was known"
    looks = sum(region["observed"] for region in of["Refused"])
    assert len(of["Refused"]) == LAYERS and 2 <= looks <= LAYERS, f"{looks} looks"
    for name in ("Block", "Cast"):
        assert sum(region["replayed"] > 0 for region in of[name]) * 2 > len(of[name]), f"{name}: each pays for itself"


if __name__ == "__main__":
    main()
