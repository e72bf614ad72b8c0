"""other_way_test.py --python INTERPRETER --grape LIBRARY: a call that is made again for a backward pass, and takes another way.

What decides the way is changed between the call and a pass that was not seen. The new nodes must not stand in for the old ones:
gradients are those of the plain run, or the pass raises Grape's error and gives none.
"""

import sys

import replayed

STEPS = 18


def models():
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.one, self.other, self.last = (nn.Linear(8, 8) for _ in range(4))

    class OtherNodes(Model):
        def forward(self, x, way):
            h = self.one(self.first(x))
            return self.last(h.tanh() if way.item() > 0 else h.sigmoid())

    class OtherNumbers(Model):
        def forward(self, x, way):
            return self.last((self.one(self.first(x)) * (2.0 if way.item() > 0 else 3.0)).tanh())

    class OtherWeights(Model):
        def forward(self, x, way):
            return self.last((self.one if way.item() > 0 else self.other)(self.first(x)).tanh())

    class OtherWeightsAtTheEnd(Model):  # all that the nodes keep beside them has the same bytes
        def forward(self, x, way):
            return (self.one if way.item() > 0 else self.other)(self.first(x).tanh())

    class OtherFactorAtTheEnd(Model):
        def forward(self, x, way):
            return self.first(x).tanh() * (self.one if way.item() > 0 else self.other).bias.detach()

    class OtherPieces(Model):
        def forward(self, x, way):
            h = self.one(self.first(x)).tanh()
            piece = h[:, :4] if way.item() > 0 else h[:, 4:]
            return self.last(torch.cat([piece * piece, h[:, 2:6]], 1))

    class OtherShare(Model):
        def forward(self, x, way):
            h, g = self.one(self.first(x)).tanh(), self.other(self.first(x)).tanh()
            return self.last(h * (g if way.item() > 0 else h))

    return OtherNodes, OtherNumbers, OtherWeights, OtherWeightsAtTheEnd, OtherFactorAtTheEnd, OtherPieces, OtherShare


def train():
    import torch

    for kind, amp in [(kind, amp) for kind in models() for amp in (False, True)]:
        name = f"{kind.__name__}{' under autocast' if amp else ''}:"
        torch.manual_seed(0)
        model = kind().cuda()
        x, way = torch.randn(4, 8, device="cuda"), torch.ones((), device="cuda")
        for step in range(STEPS):
            model.zero_grad()
            way.fill_(1)
            with torch.autocast("cuda", torch.bfloat16, enabled=amp):
                loss = model(x, way).float().square().mean()
            if step > STEPS - 4:
                way.fill_(-1)
            try:
                loss.backward(retain_graph=step > STEPS - 4)
            except RuntimeError as error:
                print(name, step, f"error: {error}")
                continue
            print(name, step, loss.item(), [p.grad.sum().item() if p.grad is not None else None for p in model.parameters()])


def main():
    if sys.argv[1:2] == ["--program"]:
        return train()
    given = replayed.options(__doc__)
    plain = replayed.run(given.python, __file__, ["--program"])
    settings = {"LD_PRELOAD": given.grape, "GRAPE_MODE": "replay", "GRAPE_EARLY_REGIONS": "1"}
    under_grape = replayed.run(given.python, __file__, ["--program"], **settings)
    assert len(plain) == len(under_grape) and not any("error" in line for line in plain)
    errors = [line for line in under_grape if "error: grape: the backward pass of a replayed call" in line]
    wrong = [line for line, other in zip(under_grape, plain) if line != other and line not in errors]
    assert not wrong, wrong
    ways = {line.split(":")[0] for line in errors}
    print(f"{len(plain)} passes, {len(errors)} errors, in {sorted(ways)}")
    assert ways == {line.split(":")[0] for line in plain}, "none took another way"


if __name__ == "__main__":
    main()
