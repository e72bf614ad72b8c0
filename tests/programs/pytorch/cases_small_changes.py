"""Usual programs: the module, what hangs on it or what it reads is changed between two calls."""

import contextvars
from typing import Any, Iterator

import torch
from torch import nn

from small import TwoLayers as Net, rows as data, two_layers as net, usual as case

CALLS = 12


@case
def weight_swapped() -> Iterator[Any]:
    model = net()
    for i in range(CALLS * 2):
        if i == 6:
            model.first.weight = nn.Parameter(torch.ones_like(model.first.weight))
        if i == 14:
            model.first.weight.data = torch.full_like(model.first.weight, 0.5)
        yield model(data())


@case
def loaded_and_cast() -> Iterator[Any]:
    model, other = net(), net()
    other.first.weight.mul_(2)
    for i in range(CALLS * 3):
        if i == 6:
            model.load_state_dict(other.state_dict())
        if i == 14:
            model.half()
        if i == 22:
            model.float().cpu().cuda()
        yield model(data().to(model.first.weight.dtype))


@case
def hook_added_later() -> Iterator[Any]:
    model, seen = net(), []
    for i in range(CALLS * 2):
        if i == 8:
            handle = model.second.register_forward_hook(lambda m, a, out: (seen.append(1), out * 2)[1])
        if i == 14:
            handle.remove()
        yield model(data())
    yield len(seen)


@case
def hook_counts() -> Iterator[Any]:
    model, count, seen = net(), 0, {"shapes": []}

    def counting(module: nn.Module, arguments: Any, output: torch.Tensor) -> None:
        nonlocal count
        count += 1

    class Shapes:
        def __call__(self, module: nn.Module, arguments: Any) -> None:
            seen["shapes"].append(tuple(arguments[0].shape))

    handle = model.second.register_forward_hook(counting)
    for i in range(CALLS * 2):
        if i == CALLS:
            handle.remove()
            model.first.register_forward_pre_hook(Shapes())
        yield [model(data(i)), count, len(seen["shapes"])]
    yield seen


@case
def hook_keeps_output() -> Iterator[Any]:
    kept: dict[str, torch.Tensor] = {}
    model = net()
    # The output lies where the last one lay, should that be freed first.
    model.second.register_forward_pre_hook(lambda m, arguments: kept.clear())
    model.second.register_forward_hook(lambda m, arguments, out: kept.update(last=out))
    for i in range(CALLS):
        yield model(data(i))
        yield kept["last"]
    other, module = net(), net()
    other.first.register_forward_hook(lambda m, arguments, out: setattr(m, "last", out))
    buffer = torch.zeros(4, 64, device="cuda")
    module.register_forward_hook(lambda m, arguments, out: buffer.copy_(out) is None)
    for i in range(CALLS):
        yield [other(data(i)), other.first.last, module(data(i)), buffer.clone()]


@case
def hook_replaces_output() -> Iterator[Any]:
    model, scale = net(), [2.0]
    model.second.register_forward_hook(lambda m, arguments, out: out * scale[0])
    model.register_forward_hook(lambda m, arguments, out: {"out": out, "twice": (out, out[1:])})
    for i in range(CALLS * 2):
        scale[0] = 3.0 if i in (9, 17) else 2.0
        result = model(data(i))
        yield [result["out"], result["twice"][1], result["twice"][0] is result["out"]]


@case
def hook_replaces_input() -> Iterator[Any]:
    model, shift = net(), torch.ones(64, device="cuda")
    model.first.register_forward_pre_hook(lambda m, arguments: (arguments[0] + shift,))
    model.register_forward_pre_hook(lambda m, arguments, keywords: (arguments, {}), with_kwargs=True)
    for i in range(CALLS * 2):
        shift.add_(1)
        yield model(data(i))


@case
def hook_removed_later() -> Iterator[Any]:
    model = net()
    handles = [model.second.register_forward_hook(lambda m, a, out, n=n: out + n) for n in (1, 2)]
    for i in range(CALLS * 3):
        if i == 8:
            handles[1].remove()
        if i == 16:
            handles[0].remove()
        if i == 24:
            model.second.register_forward_hook(lambda m, a, out: out * 5)
        yield model(data(i))


COLLECTOR: contextvars.ContextVar[Any] = contextvars.ContextVar("collector", default=None)


@case
def hook_collects_when_asked() -> Iterator[Any]:
    """As Transformers collects hidden states: a context variable says whether, and where to."""

    def collect(module: nn.Module, arguments: Any, output: torch.Tensor) -> None:
        collected = COLLECTOR.get()
        if collected is not None:
            collected.append(output)

    model = net()
    model.first.register_forward_hook(collect)
    for i in range(CALLS * 2):
        collected: list[torch.Tensor] = []
        token = COLLECTOR.set(collected if i in (7, 8, 9, 10, 11, 19) else None)
        yield model(data(i))
        COLLECTOR.reset(token)
        yield collected


@case
def forward_replaced() -> Iterator[Any]:
    model = net()
    for i in range(CALLS * 2):
        if i == 8:
            model.forward = lambda x: x + 1
        if i == 14:
            del model.forward
        if i == 18:
            Net.extra, old = 1, Net.forward
            Net.forward = lambda self, x: old(self, x) * 4
        yield model(data())
    Net.forward = old


@case
def deleted_models() -> Iterator[Any]:
    for i in range(20):
        model = net()
        for _ in range(6):
            yield model(data(i))
        del model
