"""Tensors that get other memory inside of a call (`.data = `, `set_`): views that were made before keep the old memory,
and still are views of the tensor. Cases like those of cases_autograd.py."""

import torch
from cases_autograd import add, inputs, made
from cases_hidden_bases import base_of, versions


def swap(tensor, memory):
    tensor.data = memory
    return tensor


def swap_storage(tensor, memory):
    with torch.no_grad():
        return tensor.set_(memory)


def two(x):
    """A tensor, and a view of it."""
    y = x * 2
    return y, y[1:]


# What a call of the argument x, with the weight w of its module, returns.
SWAPPED = {
    "base": lambda x, w: (lambda y, v: [swap(y, x * 3), v])(*two(x)),
    "base_last": lambda x, w: (lambda y, v: [v, swap(y, x * 3)])(*two(x)),
    "base_by_set": lambda x, w: (lambda y, v: [swap_storage(y, x * 3), v])(*two(x)),
    "base_not_returned": lambda x, w: (lambda y, v: [v, swap(y, x * 3).sum()])(*two(x)),
    "base_to_argument": lambda x, w: (lambda y, v: [swap(y, x), v])(*two(x)),
    "base_to_weight": lambda x, w: (lambda y, v: [swap(y, w.data), v])(*two(x)),
    "base_to_its_own": lambda x, w: (lambda y, v: [swap(y, y.detach()), v])(*two(x)),
    "view": lambda x, w: (lambda y, v: [y, swap(v, x[1:] * 3)])(*two(x)),
    "view_by_set": lambda x, w: (lambda y, v: [y, swap_storage(v, x[1:] * 3)])(*two(x)),
    "view_to_argument": lambda x, w: (lambda y, v: [y, swap(v, x[1:])])(*two(x)),
    "view_of_view": lambda x, w: (lambda y, v: [swap(y, x * 3), v, v[1:], y[1:]])(*two(x)),
    "new_view": lambda x, w: (lambda y, v: [swap(y, x * 3)[2:], v, y])(*two(x)),
    "both": lambda x, w: (lambda y, v: [swap(y, x * 3), swap(v, x[1:] * 3)])(*two(x)),
    "exchanged": lambda x, w: (lambda y, z, v: [swap(y, z.data), swap(z, x * 5), v, z[1:]])(x * 2, x * 3, x[1:] * 4),
    "detached": lambda x, w: (lambda y: (lambda v: [swap(y, x * 3), v])(y[1:]))(x.detach()),
    "detached_view": lambda x, w: (lambda y: (lambda v: [y, swap(v, x[1:] * 3)])(y[1:]))(x.detach()),
    "view_of_argument": lambda x, w: [swap(x[1:], x[1:] * 3)],
    "view_of_argument_to_itself": lambda x, w: [swap(x[1:], x[:3])],
    "view_of_weight": lambda x, w: [swap(w[1:], x[1:] * 3)],
    "argument": lambda x, w: (lambda v: [swap(x, x * 3).sum(), v])(x[1:]),
    "argument_returned": lambda x, w: (lambda v: [swap(x, x * 3), v])(x[1:]),
    "argument_to_made": lambda x, w: (lambda y: [swap(x, y.data), y])(x * 3),
    "argument_to_weight": lambda x, w: [swap(x, w.data), x[1:]],
}


def swapped(work, mode):
    inner = made(lambda self, x: work(x, self.linear.weight))
    for parameter in inner.parameters():
        parameter.requires_grad_(False)

    def step():
        x, w = inputs(), inner.linear.weight
        with mode():
            results = inner(x)
        tensors = [*results, x, w]
        memory = [one.untyped_storage().data_ptr() for one in tensors]
        facts = [base_of(one) for one in tensors], versions(*tensors), [memory.index(place) for place in memory]
        sums = [one.double().sum().item() for one in tensors]
        if mode is not torch.inference_mode:
            results[0].add_(1)
        return facts, sums, [one.double().sum().item() for one in tensors], versions(*tensors)

    return step


for name, work in SWAPPED.items():
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        add(f"swapped_{name}_{mode.__name__}", lambda work=work, mode=mode: swapped(work, mode))
