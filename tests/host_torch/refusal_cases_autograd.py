"""Cases of refusals_autograd_test.py: by the id of the refusal, a forward, its arguments and a step of training."""

import dataclasses
import typing

import refusal_cases_state
import torch
from torch import nn

GLOBAL = {}


def set_up():
    GLOBAL["leaf"] = torch.ones(8, device="cuda", requires_grad=True)


def batch(i):
    return (torch.full((4, 8), 0.25 + i / 8, device="cuda"),)


def stale_view(i):
    """Its base was changed in place, so that its node is made when somebody asks for it."""
    (x,) = batch(i)
    x = x.view(32)[:32].view(4, 8)
    x[:, :4].copy_(GLOBAL["leaf"][:4])
    return (x,)


def hidden_batch(i):
    """What the forward does depends on what Grape does not know of, and alternates."""
    refusal_cases_state.set_hidden(i % 2)
    return batch(i)


def with_zeros(i):
    """In alternate calls one number is 0, which the backward pass of a product looks for."""
    (x,) = batch(i)
    x[0, 0] *= i % 2
    return (x,)


def tensors_of(result):
    return [result] if isinstance(result, torch.Tensor) else [part for part in result if isinstance(part, torch.Tensor)]


def loss_of(results):
    return sum(result.square().sum() for result in results if result.requires_grad)


def train(model, arguments):
    results = tensors_of(model(*arguments))
    loss = loss_of(results)
    loss.backward()
    return [*results, loss]


def train_with_tracked_views(model, arguments):
    """The gradient of the bias knows by which operator it is a view."""
    results = tensors_of(model(*arguments))
    loss = loss_of(results)
    with torch.autograd._force_original_view_tracking(True):
        loss.backward()
    return [*results, loss]


def train_by_penalty(model, arguments):
    """The loss has the gradients in it."""
    results = tensors_of(model(*arguments))
    loss = loss_of(results)
    gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    (loss + loss_of(gradients)).backward()
    return [*results, loss, *gradients]


def train_by_way_of_the_cpu(model, arguments):
    """One result's gradient comes from the CPU, when nodes of the call have run already."""
    first, second = tensors_of(model(*arguments))
    loss = first.cpu().square().sum().to("cuda") + second.square().sum()
    loss.backward()
    return [first, second, loss]


def train_by_argument(model, arguments):
    """The gradient that comes is an argument itself."""
    results = tensors_of(model(*arguments))
    results[0].backward(arguments[0])
    return results


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


STEPS, WAITING, HOOKED = [], [], []


def run_waiting(*_):
    if WAITING:
        WAITING.pop().backward()


def train_in_between(model, arguments):
    """A hook on a parameter's node runs the backward pass of another call while that of the first one is under way."""
    if not HOOKED:
        HOOKED.append(model.linear.bias.expand_as(model.linear.bias).grad_fn.next_functions[0][0])
        HOOKED[0].register_hook(run_waiting)
    results = tensors_of(model(*arguments))
    WAITING.append(loss_of(tensors_of(model(arguments[0] * 0.5))))
    loss = loss_of(results)
    loss.backward()
    return [*results, loss]


def train_in_alternate_steps(model, arguments):
    results = tensors_of(model(*arguments))
    loss = loss_of(results)
    STEPS.append(loss.item())
    if len(STEPS) % 2 == 0:
        loss.backward()
    return [*results, loss]


def with_list(net, x, noted):
    noted.append(1)
    return net.linear(x)


def bias_in_alternate_calls(net, x):
    bias = net.linear.bias.detach() if refusal_cases_state.hidden() else net.linear.bias
    return torch.relu(torch.addmm(bias, x, net.linear.weight))


def summed_together(net, x):
    """Two nodes give gradients to the same node of the call, and to the same parameter."""
    h = net.linear(x)
    return h * net.a + h * net.a


def pieces(net, x):
    return torch.cat([net.a, net.b]) * 2


def with_slope(net, x):
    """A pass inside of the call, whose graph is gone when it returns."""
    with torch.enable_grad():
        x = x if x.requires_grad else x.detach().requires_grad_()
        energy = net.linear(x).square().sum()
        return energy.detach(), torch.autograd.grad(energy, x)[0]


def hooked_batch(i):
    """In the last calls somebody sees the argument's gradient."""
    (x,) = batch(i)
    x.requires_grad_()
    if i > 8:
        x.register_hook(lambda gradient: gradient * 2)
    return (x,)


def evaluate(model, arguments):
    return tensors_of(model(*arguments))


def look_for_anomalies(model, arguments):
    """In the last calls."""
    GLOBAL["calls"] = GLOBAL.get("calls", 0) + 1
    with torch.no_grad(), torch.autograd.set_detect_anomaly(GLOBAL["calls"] > 8):
        return evaluate(model, arguments)


@dataclasses.dataclass
class Case:
    forward: typing.Callable
    arguments: typing.Callable = batch
    step: typing.Callable = train
    parameters: tuple = ()
    modules: dict = dataclasses.field(default_factory=dict)


def linear(net, x):
    return net.linear(x)


CASES = {
    "view_requires_grad": Case(lambda net, x: (net.linear(x), net.linear.weight[1:])),
    "custom_node": Case(lambda net, x: Doubled.apply(net.linear(x))),
    "leads_elsewhere": Case(lambda net, x: net.linear(x) * GLOBAL["leaf"]),
    "not_made_twice": Case(with_list, lambda i: (*batch(i), [])),
    "other_border": Case(bias_in_alternate_calls, hidden_batch),
    "stale_view": Case(linear, stale_view),
    "no_backward": Case(linear, step=train_in_alternate_steps),
    "backward_not_recorded": Case(lambda net, x: (net.linear(x) * x).prod(), with_zeros),
    "gradient_not_plain": Case(
        lambda net, ids: net.embedding(ids),
        lambda i: (torch.tensor([1, 2, i % 3], device="cuda"),),
        modules={"embedding": lambda: nn.Embedding(4, 8, sparse=True)},
    ),
    "gradient_elsewhere": Case(pieces, parameters=("a", "b")),
    "gradients_overlap": Case(linear, step=train_by_argument),
    "gradient_of_other_kind": Case(linear, step=train_with_tracked_views),
    "gradient_comes_late": Case(
        lambda net, x: (net.linear(x) * net.a, net.linear(x) + 1.0), step=train_by_way_of_the_cpu, parameters=("a",)
    ),
    "second_derivative": Case(linear, step=train_by_penalty),
    "sums_mixed": Case(summed_together, parameters=("a",)),
    "anomalies_looked_for": Case(with_slope, step=look_for_anomalies),
    "gradient_is_seen": Case(with_slope, hooked_batch, evaluate),
    "backward_interrupted": Case(lambda net, x: torch.tanh(net.linear(x)) * net.a, step=train_in_between, parameters=("a",)),
}
