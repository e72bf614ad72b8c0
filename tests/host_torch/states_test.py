"""states_test.py --python INTERPRETER --grape LIBRARY: a module that is in several states in turn is replayed in each.

A step of reinforcement learning calls a model in eval() and in train(): each state has one call before it ends. One program
begins so behind steps in which a setting is another one each time. In the last one it is another one in all steps: nothing is
replayed, and results are as they are.
"""

import sys

import replayed

STEPS = 60
LEAST = {"in_turn": 100, "in_turn_later": 150, "never_again": 0}


def program(name):
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    steps = 3 * STEPS if name == "in_turn_later" else STEPS
    for i in range(steps):
        if name == "never_again" or (name == "in_turn_later" and i < STEPS):
            model[3].p = 0.001 * (i + 1)
        x = torch.randn(4, 8).cuda()
        model.eval()
        with torch.no_grad():
            wanted = model(x)
        model.train()
        loss = (model(x) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = model[1].running_mean.double().sum().item()
        print(i, loss.item(), mean, wanted.double().sum().item(), torch.rand(()).item(), flush=True)


def main():
    if sys.argv[1:2] == ["--program"]:
        return program(sys.argv[2])
    given = replayed.options(__doc__)
    for name, least in LEAST.items():
        _, regions = replayed.compare(given, __file__, ["--program", name])
        whole = next(region for region in regions if region["region"].endswith("Sequential"))
        print(f"{name}: {whole['replayed']} of {whole['calls']} calls replayed")
        if whole["replayed"] < least:
            raise SystemExit(f"less than {least}")


if __name__ == "__main__":
    main()
