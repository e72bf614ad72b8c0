"""Calls that move what autograd notes of a tensor, with the same objects and values. Each case is called again and again, so
that Grape would prove it, and gives what a program sees of it: losses, gradients, names of grad_fn, versions, errors."""

import dataclasses

import bed
import torch
from numpy._core import _multiarray_umath as umath
from torch import nn
from torch.utils.checkpoint import checkpoint

SIZE = 6
STEPS = 24


def add(name, make, group="training"):
    """A case: `make()` gives a step, which is called again and again."""

    def body(run):
        torch.use_deterministic_algorithms(True, warn_only=True)
        step = make()
        for _ in range(STEPS):
            run.attempt(step)

    bed.declare(name, body, file="autograd", mode="grad", group=group)


def case(make):
    add(make.__name__, make)
    return make


class Call(nn.Module):
    """`work(module, *arguments)` as a forward."""

    def __init__(self, work, **parts):
        super().__init__()
        self.work = work
        self.linear = nn.Linear(SIZE, SIZE)
        self.after = nn.Linear(SIZE, SIZE)
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *arguments):
        return self.work(self, *arguments)


def made(work, **parts):
    torch.manual_seed(0)
    return Call(work, **parts).cuda()


def seen(*tensors):
    facts = lambda x: (x.grad_fn and x.grad_fn.name(), x._version, x.requires_grad, x.is_leaf, x.retains_grad, x.output_nr,
                       x._is_view(), x.float().sum().item(), None if not x.is_leaf else gradient(x))
    return [facts(x) for x in tensors]


def gradient(x):
    return x.grad.double().sum().item() if x.grad is not None else None


def gradients(module):
    found = [gradient(p) for p in module.parameters()]
    module.zero_grad()
    return found


def inputs():
    return torch.arange(4 * SIZE, device="cuda", dtype=torch.float32).view(4, SIZE) / 10 - 1


def around(inner):
    """A call of `inner` between two linear layers, and a backward pass."""
    outer = made(lambda self, x: self.after(inner(self.linear(x))))

    def step():
        loss = outer(inputs()).square().mean()
        loss.backward()
        return loss.item(), gradients(outer), [gradient(p) for p in getattr(inner, "parameters", list)()]

    return step


def on_result(work, keep=False, **parts):
    """`work(module, h)` on the result `h` of a layer, which requires grad and is no leaf; then a backward pass from `h`."""
    inner, layer = made(work, **parts), nn.Linear(SIZE, SIZE).cuda()

    def step():
        h = layer(inputs())
        base = h
        if keep:
            h = h[1:]
        try:
            result = inner(h)
        except RuntimeError as error:
            return type(error).__name__, str(error)
        facts = seen(h, base) + (seen(result) if isinstance(result, torch.Tensor) else [])
        base.square().sum().backward()
        return facts, gradients(layer), gradients(inner)

    return step


def activation(make):
    return lambda: around(make())


for name in ("ReLU", "ELU", "CELU", "SELU", "LeakyReLU", "Hardswish", "Hardtanh", "ReLU6", "SiLU", "Hardsigmoid", "Threshold"):
    arguments = (0.1, 0.2) if name == "Threshold" else ()
    add("activation_" + name, activation(
        lambda name=name, arguments=arguments: getattr(nn, name)(*arguments, inplace=True)))
add("activation_Dropout", activation(lambda: nn.Dropout(0.5, inplace=True)))


@case
def positions():
    """A forward that adds a parameter to its argument, in place."""
    inner = made(lambda self, x: x.add_(self.pe), pe=nn.Parameter(torch.ones(SIZE)))
    return around(inner)


WRITES = {
    "copy_of_a_part": lambda self, h: (h[:, :2].copy_(self.linear(h.detach())[:, :2]), None)[1],
    "zero": lambda self, h: (h.zero_(), None)[1],
    "fill": lambda self, h: (h.fill_(2), None)[1],
    "rows": lambda self, h: (h[1:].zero_(), None)[1],
    "transposed": lambda self, h: (h.t().mul_(2), None)[1],
    "diagonal": lambda self, h: (h.diagonal().mul_(3), None)[1],
    "flat": lambda self, h: (h.view(-1)[::2].mul_(4), None)[1],
    "foreach": lambda self, h: (torch._foreach_mul_([h], 2.0), None)[1],
    "with_gradients_on": lambda self, h: (write_with_gradients(h), None)[1],
    "detached": lambda self, h: (h.detach().mul_(2), None)[1],
    "data": lambda self, h: (h.data.mul_(2), None)[1],
    "returned": lambda self, h: h.mul_(self.linear.weight.sum()),
    "retained": lambda self, h: (h.retain_grad(), None)[1],
    "hooked": lambda self, h: (h.register_hook(double), None)[1],
    "detach": lambda self, h: (h.detach_(), None)[1],
}


def double(grad):
    return grad * 2


def write_with_gradients(h):
    with torch.enable_grad():
        h.mul_(1.5)


for name, work in WRITES.items():
    add("write_" + name, lambda work=work: on_result(work))
    add("write_to_a_view_" + name, lambda work=work: on_result(work, keep=True))


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


@case
def marked_dirty():
    return on_result(lambda self, h: (Dirty.apply(h), None)[1])


@dataclasses.dataclass
class Held:
    x: torch.Tensor


def inside(wrap, unwrap):
    inner, layer = made(lambda self, holder: (unwrap(holder).mul_(2), None)[1]), nn.Linear(SIZE, SIZE).cuda()

    def step():
        h = layer(inputs())
        inner(wrap(h))
        facts = seen(h)
        h.square().sum().backward()
        return facts, gradients(layer)

    return step


add("in_a_list", lambda: inside(lambda h: [h], lambda holder: holder[0]))
add("in_a_dict", lambda: inside(lambda h: {"h": h}, lambda holder: holder["h"]))
add("in_an_object", lambda: inside(Held, lambda holder: holder.x))


@case
def buffer():
    """A module's state that requires grad, and is worked on in place."""
    inner = made(lambda self, x: (self.h.mul_(0.5).add_(self.linear(x)), None)[1])
    inner.register_buffer("h", None)
    keeps = []

    def step():
        if len(keeps) % 6 == 0:
            inner.h = torch.zeros(4, SIZE, device="cuda")
        keeps.append(inner(inputs()))
        facts = seen(inner.h)
        if len(keeps) % 6 == 5:
            inner.h.square().sum().backward()
            return facts, gradients(inner)
        return facts

    return step


STATE = {}


@case
def named_global():
    inner, layer = made(lambda self, x: (STATE["h"].mul_(x.sum()), None)[1]), nn.Linear(SIZE, SIZE).cuda()

    def step():
        STATE["h"] = layer(inputs())
        inner(inputs())
        facts = seen(STATE["h"])
        STATE["h"].square().sum().backward()
        return facts, gradients(layer)

    return step


@case
def leaf_in_turn():
    """In place on what is no leaf, and at times on a leaf, where PyTorch raises."""
    inner, count = made(lambda self, h: (h.mul_(2), None)[1]), []

    def step():
        count.append(1)
        weight = torch.ones(4, SIZE, device="cuda", requires_grad=True)
        h = weight if len(count) % 12 == 0 else weight * 1
        try:
            inner(h)
        except RuntimeError as error:
            return str(error), weight.sum().item()
        return seen(h, weight)

    return step


@case
def view_detached_in_turn():
    inner, count = made(lambda self, h: (h.detach_(), None)[1]), []

    def step():
        count.append(1)
        x = inputs()
        try:
            inner(x[1:].clone() if len(count) % 12 else x[1:])
        except RuntimeError as error:
            return str(error)
        return seen(x)

    return step


@case
def checkpointed():
    """What a checkpoint counts of saved tensors must be what eager saves."""
    scale = made(lambda self, h: self.linear(h.detach()).detach().tanh())
    gate = made(lambda self, h: self.linear(h.detach()).topk(2).indices)
    first, last = nn.Linear(SIZE, SIZE).cuda(), nn.Linear(SIZE, SIZE).cuda()

    def block(x):
        h = first(x).tanh()
        s = scale(h)
        return (last(h).tanh() * s).tanh().gather(1, gate(h))

    def step():
        x = inputs().requires_grad_()
        checkpoint(block, x, use_reentrant=False).sum().backward()
        return gradient(x), gradients(first), gradients(last), gradients(scale)

    return step


@case
def packed():
    """Somebody who looks at what is saved sees it in each call."""
    inner, count = made(lambda self, x: self.linear(x).tanh()), []

    def pack(x):
        count.append(tuple(x.shape))
        return x

    def step():
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            y = inner(inputs())
        with torch.no_grad():
            inner(inputs())
        return len(count), seen(y)

    return step


@case
def views_of_results():
    """Errors of in-place work on a view depend on the mode and the operator that made it."""
    inner = made(lambda self, x: x.unbind(0))
    outer = made(lambda self, x: part_without_gradients(x))

    hidden = made(lambda self, x: (x * 0.25)[1:])
    several = made(lambda self, x: (x * 0.25).chunk(2))

    def change(view, weight):
        try:
            view.mul_(weight)
        except RuntimeError as error:
            return str(error)
        return seen(view), view._base is None

    def step():
        weight = torch.ones(SIZE, device="cuda", requires_grad=True)
        found = [change(inner(inputs())[1], weight), change(outer(inputs()), weight), change(hidden(inputs()), weight),
                 change(several(inputs())[1], weight)]
        with torch.no_grad():
            without = hidden(inputs()), several(inputs())[1]
        return found, [change(view, weight) for view in without]

    return step


def part_without_gradients(x):
    with torch.no_grad():
        return x[1:]


@case
def modes():
    """Modes of autograd's, set around calls and read in them."""
    inner = made(lambda self, x: (self.linear(x).detach(), torch._C._is_multithreading_enabled(),
                                  torch._C._is_view_replay_enabled(), torch._C._is_fwd_grad_enabled()))
    count = []

    def step():
        count.append(1)
        with torch.autograd.set_multithreading_enabled(len(count) % 9 != 0):
            with torch.autograd._force_original_view_tracking(len(count) % 10 == 0):
                y, *seen_modes = inner(inputs())
        return y.sum().item(), seen_modes

    return step


@case
def graph_of_the_argument():
    def look(self, h):
        torch.autograd.graph.get_gradient_edge(h).node.metadata["calls"] = 1
        return h.detach() * 2

    return on_result(look)


def hidden():
    """Works in place only when a setting that Grape does not see says so: for GRAPE_VALIDATE."""
    inner, layer = made(lambda self, h: h.mul_(2) if umath._get_madvise_hugepage() else h.detach()), nn.Linear(SIZE, SIZE)
    layer.cuda()
    count = []

    def step():
        count.append(1)
        umath._set_madvise_hugepage(int(len(count) > 16))
        h = layer(inputs())
        inner(h)
        return seen(h) if len(count) <= 16 else None

    return step


@case
def numbers_of_nodes():
    """Nodes that a call makes and gives up count: gradients of several threads' nodes are added in their order."""
    inner = made(lambda self, x: self.linear(x).tanh().detach())
    layer = nn.Linear(SIZE, SIZE).cuda()

    def step():
        inner(inputs())
        x = inputs().requires_grad_()
        y = layer(x).tanh()
        (g,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        (g.square().sum() + y.sum()).backward()
        return y.grad_fn._sequence_nr(), g.grad_fn._sequence_nr(), gradient(x), gradients(layer)

    return step


@case
def hooked_node():
    """A library that registers a hook on a node of the graph, and gives back what requires no grad."""

    def look(self, h):
        if h.grad_fn is not None:
            h.grad_fn.register_prehook(lambda grads: tuple(g * 2 for g in grads))
        return h.detach() * 2

    return on_result(look)


@case
def stale_view():
    """A view whose base was worked on in place: what its grad_fn is, is found out when somebody asks."""
    inner, layer = made(lambda self, v: self.linear(v.detach()).detach()), nn.Linear(SIZE, SIZE).cuda()

    def step():
        h = layer(inputs())
        v = h[1:]
        h.mul_(2)
        inner(v)
        with torch.no_grad():
            inner(v)
        facts = seen(v, h)
        v.square().sum().backward()
        return facts, gradients(layer)

    return step


def stale_later(write):
    """A call that works on a view, which makes the view's grad_fn anew where the base was written to since: its nodes'
    numbers are older than those of work that follows."""
    inner, layer = made(lambda self, v: (v.t().contiguous(), self.kept)[1]), nn.Linear(SIZE, SIZE).cuda()
    inner.register_buffer("kept", torch.ones(SIZE, device="cuda"))
    steps = iter(range(1000))

    def step():
        h = layer(inputs())
        v = h[1:]
        if next(steps) % 24 > 17:
            write(h)
        r = v + inner(v)
        nodes = [r.grad_fn, r.grad_fn.next_functions[0][0]]
        facts = seen(r, h), [(node.name(), node._sequence_nr() - r.grad_fn._sequence_nr()) for node in nodes]
        r.square().sum().backward()
        return facts, gradients(layer)

    return step


add("stale_later", lambda: stale_later(lambda h: h.mul_(2)))
add("stale_later_part", lambda: stale_later(lambda h: torch.relu_(h[2:])))


@case
def casts_without_gradients():
    """Casts that autocast keeps are nodes of the graph, with numbers in the order of their making, also where a call
    without gradients made them."""
    inner = made(lambda self, x: self.after(self.linear(x)))

    def step():
        x = inputs()
        with torch.autocast("cuda", torch.bfloat16):
            first = (inputs().requires_grad_() * 1).grad_fn._sequence_nr()
            with torch.no_grad():
                inner(x)
            y = inner.linear(x)
        nodes = [y.grad_fn]
        for node in nodes:
            nodes += [one for one, _ in node.next_functions if one is not None and "Accumulate" not in one.name()]
        facts = [(node.name(), node._sequence_nr() - first) for node in nodes]
        y.float().square().sum().backward()
        return facts, gradients(inner)

    return step


@case
def moving_average():
    """Weights that require grad, averaged under no_grad by a module, and views of them."""
    weight = nn.Parameter(torch.ones(4, SIZE, device="cuda"))
    inner = made(lambda self, w, x: (w.mul_(0.9).add_(x, alpha=0.1), w[1:])[1])

    def step():
        with torch.no_grad():
            part = inner(weight, inputs())
        try:
            facts = seen(part, weight)
            (weight * 2).sum().backward()
            change = part.mul_(torch.ones(SIZE, device="cuda", requires_grad=True))
            return facts, seen(change)
        except RuntimeError as error:
            return facts, str(error)

    return step


add("hidden", hidden, group="hidden")  # differs, and GRAPE_VALIDATE sees it
