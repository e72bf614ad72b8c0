"""looks_test.py --python INTERPRETER --grape LIBRARY: what looks at calls may cost.

loop     a training loop is replayed, although its looks take as long as many of its steps
lengths  calls of many lengths, at random: under the budget fewer are looked at than without it
reads    a model whose host reads another value in each call but for a few is given up as a whole; the modules inside of it are
         replayed
"""

import sys

import replayed

STEPS, LENGTHS = 120, 60


def model():
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)))).cuda()


def loop():
    import torch

    net, x = model(), torch.randn(4, 16, device="cuda")
    optimizer = torch.optim.SGD(net.parameters(), 0.01, foreach=False)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item())


def lengths():
    import random

    import torch

    net, choose = model(), random.Random(0)
    inputs = [torch.randn(1 + length, 16, device="cuda") for length in range(LENGTHS)]
    with torch.no_grad():
        for _ in range(2 * STEPS):
            print(net(choose.choice(inputs)).sum().item())


def reads():
    import torch
    from torch import nn

    class Reading(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model()

        def forward(self, x, flag):
            x = self.inner(x)
            return x + 1 if flag.item() > 50 else x

    net, values = Reading().cuda(), torch.arange(STEPS, device="cuda")
    with torch.no_grad():
        for turn in range(STEPS):
            same = turn in (1, 3, 5)
            x = torch.ones(5 if same else 4, 16, device="cuda")
            print(net(x, values[0 if same else turn].clone()).sum().item())


PROGRAMS = {"loop": loop, "lengths": lengths, "reads": reads}


def main():
    if sys.argv[1:2] == ["--program"]:
        return PROGRAMS[sys.argv[2]]()
    given = replayed.options(__doc__)

    def regions(program, budget):
        found = replayed.compare(given, __file__, ["--program", program], GRAPE_LOOK_BUDGET=budget)[1]
        of = {region["region"].replace(":", ".").split(".")[-1]: region for region in found}
        print(program, budget, {name: (region["observed"], region["replayed"]) for name, region in of.items()})
        return of

    assert regions("loop", "limited")["Sequential"]["replayed"] >= STEPS // 4
    few, all_ = (regions("lengths", budget)["Sequential"] for budget in ("limited", "unlimited"))
    assert few["observed"] < all_["observed"]
    assert "put_off" in {reason["id"] for reason in few["reasons"]}
    assert regions("reads", "unlimited")["Sequential"]["replayed"] >= STEPS // 4


if __name__ == "__main__":
    main()
