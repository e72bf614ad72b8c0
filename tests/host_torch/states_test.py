"""states_test.py --python INTERPRETER --grape LIBRARY: a module that is in several states in turn is replayed in each.

A step of reinforcement learning calls a model in eval() and in train(), a GAN's freezes a net and frees it again: each state has
a call or two before it ends. So it is with averaged weights, layers and hooks that come and go, and rates that take turns. One
program begins so behind steps in which a setting is another one each time. Where it is another one in all steps, or a weight
is a new one, nothing is replayed, and results are as they are.
"""

import sys

import replayed

STEPS = 60
LEAST = {"modes": 100, "modes_in_one_graph": 100, "three_modes": 40, "four_states": 80, "frozen": 100, "weights": 50, "rate": 50, "hook": 20,
         "layer": 30, "modes_later": 150, "never_again": 0, "new_weight": 0}  # fmt: skip


def program(name):
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)]
    model, tanh = nn.Sequential(*layers).cuda(), layers[5]
    own = dict(model.named_parameters())
    others = {place: nn.Parameter(weight.detach() * 1.1) for place, weight in own.items()}
    weights = [*own.values(), *others.values()]
    optimizer = torch.optim.SGD(weights, 0.01)

    def use(some):
        for place, weight in some.items():
            layer, _, attribute = place.rpartition(".")
            setattr(model.get_submodule(layer), attribute, weight)

    def loss_of(x):
        return model(x).square().mean()

    def modes(x, i, graph=False):
        model.eval()
        with torch.set_grad_enabled(graph):
            wanted = model(x)
        model.train()
        return (model(x) - wanted).square().mean()

    def three_modes(x, i):
        model.train(i % 3 != 0)
        model[1].train(i % 3 == 2)
        return loss_of(x)

    def frozen(x, i):
        for freed in (False, True):
            for weight in own.values():
                weight.requires_grad_(freed)
            given = x.clone().requires_grad_()
            loss = loss_of(given)
            if not freed:
                loss.backward()
                reached = given.grad.sum()
        return loss + reached

    def four_states(x, i):
        model[0].weight.requires_grad_(i % 2 == 0)
        return modes(x, i)

    def averaged(x, i):
        use(others if i % 2 else own)
        return loss_of(x)

    def rate(x, i):
        model[3].p = 0.1 if i % 2 else 0.3
        return loss_of(x)

    def hook(x, i):
        handle = model[4].register_forward_hook(lambda module, inputs, result: result * 2) if i % 2 else None
        loss = loss_of(x)
        if handle is not None:
            handle.remove()
        return loss

    def layer(x, i):
        model[5] = nn.ReLU() if i % 3 == 0 else tanh
        return loss_of(x)

    def modes_later(x, i):
        if i < STEPS:
            model[3].p = 0.001 * (i + 1)
        return modes(x, i)

    def never_again(x, i):
        model[3].p = 0.001 * (i + 1)
        return modes(x, i)

    def new_weight(x, i):
        model[4].bias = nn.Parameter(torch.full((16,), 0.1, device="cuda"))
        return loss_of(x)

    steps = {"modes": modes, "modes_in_one_graph": lambda x, i: modes(x, i, True), "three_modes": three_modes, "four_states": four_states, "frozen": frozen,
             "weights": averaged, "rate": rate, "hook": hook, "layer": layer, "modes_later": modes_later,
             "never_again": never_again, "new_weight": new_weight}  # fmt: skip
    for i in range(3 * STEPS if name == "modes_later" else STEPS):
        optimizer.zero_grad()
        loss = steps[name](torch.randn(4, 8).cuda(), i)
        loss.backward()
        gradients = [None if weight.grad is None else weight.grad.double().sum().item() for weight in weights]
        buffers = [buffer.double().sum().item() for buffer in model.buffers()]
        optimizer.step()
        print(i, loss.item(), gradients, buffers, torch.rand(()).item(), flush=True)


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
