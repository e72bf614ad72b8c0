"""A model, and what a program can change of it: each change gives what undoes it, or None where nothing does."""

import collections

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.1)
        self.act = nn.functional.gelu
        self.sizes = [1, 2, {"a": torch.float16}]
        self.device = torch.device("cpu")

    def forward(self, x):
        return self.dropout(self.act(self.linear(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.lstm = nn.LSTM(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.attention = nn.MultiheadAttention(8, 2)
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.ones(3, 3).tril(), persistent=False)
        self.plain = torch.zeros(4)
        self.pair = nn.ParameterDict({"x": nn.Parameter(torch.zeros(2))})

    def forward(self, x):
        return self.head(self.blocks[0](self.embed(x)))


def net(seed=0):
    torch.manual_seed(seed)
    return Net()


def attribute(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, before)


def data(parameter, value):
    before = parameter.data
    parameter.data = value
    return lambda: setattr(parameter, "data", before)


def hook(register, *arguments, **keywords):
    handle = register(*arguments, **keywords)
    return handle.remove


def swapped_children(m):
    one, two = m.blocks[0], m.blocks[1]
    m.blocks[0], m.blocks[1] = two, one

    def undo():
        m.blocks[0], m.blocks[1] = one, two

    return undo


def deleted(owner, name):
    before = getattr(owner, name)
    delattr(owner, name)
    return lambda: setattr(owner, name, before)


def added(owner, name, value):
    setattr(owner, name, value)
    return lambda: delattr(owner, name)


def patched(cls, name, value):
    before = cls.__dict__[name]
    setattr(cls, name, value)
    return lambda: setattr(cls, name, before)


def none_of(*_, **__):
    return None


CHANGES = {
    "eval": lambda m: (m.eval(), m.train)[1],
    "one module's training": lambda m: attribute(m.blocks[1].dropout, "training", False),
    "dropout's p": lambda m: attribute(m.blocks[0].dropout, "p", 0.2),
    "eps": lambda m: attribute(m.blocks[0].norm, "eps", 1e-6),
    "weight.data": lambda m: data(m.blocks[0].linear.weight, torch.zeros(8, 8)),
    "weight.data of another type": lambda m: data(m.blocks[0].linear.weight, torch.zeros(8, 8).half()),
    "weight.data transposed": lambda m: data(m.blocks[0].linear.weight, m.blocks[0].linear.weight.data.t()),
    "weight.data in part": lambda m: data(m.blocks[0].linear.weight, m.blocks[0].linear.weight.data[:4]),
    "weight.data with an offset": lambda m: data(m.blocks[0].linear.weight, m.blocks[0].linear.weight.data[1:]),
    "weight swapped": lambda m: attribute(m.blocks[0].linear, "weight", nn.Parameter(torch.zeros(8, 8))),
    "weights exchanged": lambda m: attribute(m.blocks[0].linear, "weight", m.blocks[1].linear.weight),
    "weight untied": lambda m: attribute(m.head, "weight", nn.Parameter(m.embed.weight.data)),
    "buffer swapped": lambda m: attribute(m, "mask", torch.ones(3, 3).tril()),
    "buffer.data": lambda m: data(m.norm.running_mean, torch.zeros(8)),
    "plain tensor swapped": lambda m: attribute(m, "plain", torch.zeros(4)),
    "bias gone": lambda m: attribute(m.blocks[0].linear, "bias", None),
    "requires_grad": lambda m: attribute(m.embed.weight, "requires_grad", False),
    "attribute of a parameter": lambda m: added(m.embed.weight, "note", 1),
    "parameter in a dict": lambda m: attribute(m.pair, "x", nn.Parameter(torch.zeros(2))),
    "child replaced": lambda m: attribute(m.blocks[0], "linear", nn.Linear(8, 8)),
    "child's class replaced": lambda m: attribute(m.blocks[0], "norm", nn.Identity()),
    "children exchanged": swapped_children,
    "child added": lambda m: added(m, "extra", nn.Identity()),
    "attribute added": lambda m: added(m.blocks[1], "extra", None),
    "function": lambda m: attribute(m.blocks[0], "act", nn.functional.relu),
    "list": lambda m: (m.blocks[0].sizes.append(3), m.blocks[0].sizes.pop)[1],
    "dtype in a dict": lambda m: (
        m.blocks[0].sizes[2].update(a=torch.float32),
        lambda: m.blocks[0].sizes[2].update(a=torch.float16),
    )[1],
    "device": lambda m: attribute(m.blocks[0], "device", torch.device("cuda:0")),
    "forward on the instance": lambda m: added(m.blocks[0], "forward", none_of),
    "forward of the class": lambda m: patched(Block, "forward", none_of),
    "forward's code": lambda m: attribute(Net.forward, "__code__", Block.forward.__code__),
    "forward of a library's class": lambda m: patched(nn.Linear, "forward", none_of),
    "call of all modules": lambda m: patched(nn.Module, "_call_impl", none_of),
    "attribute of the class": lambda m: added(Net, "flag", 1),
    "class": lambda m: attribute(m, "__class__", type("Net", (Net,), {})),
    "tensor's class": lambda m: added(torch.Tensor, "grape_note", 1),
    "forward hook": lambda m: hook(m.blocks[0].register_forward_hook, none_of),
    "forward pre-hook": lambda m: hook(m.blocks[0].linear.register_forward_pre_hook, none_of),
    "hook with keywords": lambda m: hook(m.register_forward_hook, none_of, with_kwargs=True),
    "hook always called": lambda m: hook(m.register_forward_hook, none_of, always_call=True),
    # Leaves a flag behind.
    "backward hook": lambda m: (hook(m.lstm.register_full_backward_hook, none_of), None)[1],
    "backward pre-hook": lambda m: hook(m.lstm.register_full_backward_pre_hook, none_of),
    "hook of all modules": lambda m: hook(nn.modules.module.register_module_forward_hook, none_of),
    "pre-hook of all modules": lambda m: hook(nn.modules.module.register_module_forward_pre_hook, none_of),
    "backward hook of all modules": lambda m: hook(nn.modules.module.register_module_full_backward_hook, none_of),
    "hooks of all modules exchanged": lambda m: attribute(
        nn.modules.module, "_global_forward_hooks", collections.OrderedDict({1: none_of})
    ),
    "always called hook of all modules": lambda m: hook(
        nn.modules.module.register_module_forward_hook, none_of, always_call=True
    ),
    "parametrisation": lambda m: (
        nn.utils.parametrize.register_parametrization(m.blocks[0].linear, "weight", nn.Identity()),
        None,
    )[1],
    "weight norm": lambda m: (nn.utils.parametrizations.weight_norm(m.blocks[0].linear), None)[1],
    "spectral norm": lambda m: (nn.utils.spectral_norm(m.blocks[0].linear), None)[1],
    "half": lambda m: (m.half(), None)[1],
    "double": lambda m: (m.double(), None)[1],
    "set_": lambda m: (m.norm.running_mean.set_(torch.zeros(8)), None)[1],
    "storage resized": lambda m: (m.plain.untyped_storage().resize_(4096), None)[1],
    "resized": lambda m: (m.plain.resize_(1024, 8), None)[1],
    "load_state_dict, assigned": lambda m: (m.load_state_dict(net(1).state_dict(), assign=True), None)[1],
    "swap_tensors": lambda m: (torch.utils.swap_tensors(m.blocks[0].linear.bias, nn.Parameter(torch.zeros(8))), None)[
        1
    ],
    "compiled": lambda m: (m.blocks[0].compile(), None)[1],
    "to_empty": lambda m: (m.to_empty(device="cpu"), None)[1],
}
