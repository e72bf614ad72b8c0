"""What all random programs share: small inputs, custom functions, hooks, containers. Programs import all of it."""

import dataclasses
import types

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

__all__ = [
    "Box", "Buffers", "Dirty", "DirtyUnwritten", "Doubles", "F", "LOG", "Once", "Picks", "Same", "Saves", "Two",
    "checkpoint", "count_packed", "data", "double", "give_back", "halves_output", "loss_of", "new_state", "nn",
    "no_replacement", "note_backward", "note_grad", "retains_input", "retains_output", "saved_tensors_hooks",
    "tensors_of", "torch",
]  # fmt: skip

LOG = []  # what hooks were told; looked at after each step


@dataclasses.dataclass
class Box:
    x: object
    more: object = None


class Buffers:
    """Not a module, but holds tensors."""

    def __init__(self):
        self.t = data(77)


def data(number, rows=4, grad=False):
    """The same 4 columns for the same number; drawn from a generator of its own."""
    generator = torch.Generator().manual_seed(number)
    return (torch.rand(rows, 4, generator=generator) - 0.5).cuda().requires_grad_(grad)


def new_state(net, **more):
    return types.SimpleNamespace(net=net, kept=[], handles=[], packed=[], x=None, r=None, **more)


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Box):
        value = [value.x, value.more]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for part in inside for tensor in tensors_of(part)]


def loss_of(*values):
    """A number with a gradient, of all tensors that have one; without any, of a new leaf."""
    with_grad = [tensor for value in values for tensor in tensors_of(value) if tensor.requires_grad]
    terms = [(tensor.float() * (number + 1)).pow(2).sum() for number, tensor in enumerate(with_grad)]
    return sum(terms) if terms else torch.ones(2, device="cuda", requires_grad=True).sum()


# Hooks of tensors and modules.
def double(grad):
    return grad * 2


def note_grad(parameter):
    LOG.append(("accumulated", parameter.grad.sum().item()))


def note_backward(module, grad_in, grad_out):
    LOG.append(("backward", len(grad_in), [g is not None for g in grad_out]))


def halves_output(module, args, output):
    return output * 0.5 if isinstance(output, torch.Tensor) and output.is_floating_point() else None


def no_replacement(module, args, output):
    return None


def retains_input(module, args):
    for tensor in tensors_of(args):
        if tensor.requires_grad:
            tensor.retain_grad()


def retains_output(module, args, output):
    for tensor in tensors_of(output):
        if tensor.requires_grad:
            tensor.retain_grad()


def count_packed(tensor):
    LOG.append(("packed", tuple(tensor.shape)))
    return tensor


def give_back(tensor):
    return tensor


class Saves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x * 2


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = 2
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(0.5)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 0.5


class DirtyUnwritten(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * -1


class Picks(torch.autograd.Function):
    """Returns a view."""

    @staticmethod
    def forward(ctx, x):
        return x.view(4, 4)

    @staticmethod
    def backward(ctx, grad):
        return grad + 1


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x + 1

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return None if grad is None else grad * 0.75


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        rest = x.sum(-1)
        ctx.mark_non_differentiable(rest)
        return x * 1.5, rest

    @staticmethod
    def backward(ctx, grad, _):
        return grad * 1.5
