"""Modules that their own calls change: they keep tensors, count, or compute their weights anew. As arguments of their calls
they are replayed, if what they keep is alike from call to call."""
import gc

import torch
from bed import case
from tiny import Net, data, net
from torch import nn


class Keeping(Net):
    def __init__(self):
        super().__init__()
        self.kept = None

    def forward(self, x):
        y = super().forward(x)
        self.kept = y * 2
        return y + 1


class Averaging(Net):
    def __init__(self):
        super().__init__()
        self.mean = torch.zeros(8, device="cuda")

    def forward(self, x):
        y = super().forward(x)
        self.mean = self.mean * 0.5 + y
        return self.mean


@case("e{4}r{10}")
def module_that_keeps_what_it_is_given(run):
    model = net(Averaging)
    for i in range(14):
        y = run(model, data(i))
        run.see(model.mean, y is model.mean)


@case("e{4}r{4}er{4}ee[er]*r{8}")
def what_a_module_keeps_is_changed_by_others(run):
    model = net(Keeping)
    earlier = []
    for i in range(26):
        if i == 8:
            model.kept = None
        if i == 13:
            model.scale = 2.0
        if i > 8 and i % 3 == 0:
            model.kept.add_(1)
        run(model, data(i))
        earlier.append(model.kept)
    run.see(earlier)


@case("e{4}r{11}[er]*r{6}")
def weights_of_a_module_that_keeps(run):
    model = net(Keeping)
    for i in range(32):
        if i == 9:
            model.first.weight.data = model.first.weight.data * 2
        if i == 12:
            model.second.weight.mul_(0.5)
        if i == 15:
            model.second = net().second
        run(model, data(i))
        run.see(model.kept)


@case("[er]*r{8}")
def two_modules_that_keep(run):
    models = [net(Keeping), net(Keeping)]
    models[1].first.weight.data.mul_(3)
    for i in range(24):
        run(models[i % 2], data(i))
        run.see([model.kept for model in models])


# Another state in each call: what is inside is replayed, if anything.
@case("e{5}[ep]*")
def module_that_counts(run):
    class Counting(Net):
        def __init__(self):
            super().__init__()
            self.calls, self.log = 0, []

        def forward(self, x):
            self.calls += 1
            self.log.append(self.calls)
            return super().forward(x) * self.calls

    model = net(Counting)
    for i in range(20):
        run(model, data(i))
        run.see(model.calls, len(model.log))


# As torch.nn.utils.weight_norm: what a hook makes of the parameters is an attribute in each call.
@case("e{4}r{18}")
def weights_made_by_a_hook(run):
    def normalise(module, inputs):
        module.weight = module.direction * module.length

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.direction = nn.Parameter(torch.full((8, 8), 0.25, device="cuda"), requires_grad=False)
            self.length = nn.Parameter(torch.full((8, 8), 2.0, device="cuda"), requires_grad=False)
            self.register_forward_pre_hook(normalise)

        def forward(self, x):
            return torch.relu(x * self.weight.sum() + 1)

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = Layer(), Layer()

        def forward(self, x):
            return self.two(self.one(x))

    model = net(Two)
    for i in range(22):
        if i == 9:
            model.one.length.mul_(1.5)
        if i == 12:
            model.two.length.data = model.two.length.data * 0.5
        run(model, data(i))
        run.see(model.one.weight, model.two.weight)


# weight_norm leaves what it made on the CPU there, until the first call on the device.
@case("e{5}r{9}")
def large_weights_that_are_replaced_in_the_first_call(run):
    class Late(Net):
        def __init__(self):
            super().__init__()
            self.weight = torch.zeros(200, 200)

        def forward(self, x):
            y = super().forward(x)
            self.weight = y * 2
            return y + 1

    model = net(Late)
    run.see(model.weight.device.type)
    for i in range(14):
        run(model, data(i))
        run.see(model.weight)


@case("[er]*r{4}")
def modules_that_keep_come_and_go(run):
    used = []
    for i in range(3):
        model = net(Keeping)
        for j in range(12):
            run(model, data(j))
        del model
        gc.collect()
        used.append(torch.cuda.memory.memory_allocated())
    run.see(used[1] == used[2])
