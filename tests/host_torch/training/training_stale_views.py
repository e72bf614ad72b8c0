"""Views whose base was changed in place, so that their nodes are made when somebody asks. Until then PyTorch takes them for leaves,
and refuses in-place operators on them: whoever looks must not ask."""

import torch
from common import Run, nn, program, sgd

STEPS = 16


class Written(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, writes: bool = False) -> torch.Tensor:
        r = self.lin(x.detach()).relu() * 2.0
        if writes:
            x[...] = 0.5
        return r


class Returned(nn.Module):
    """What it returns is a view of what it changes behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        whole = self.lin(x.detach()) * 1.0
        part = whole[:2]
        whole[:, 1:].mul_(2.0)
        return whole, part


def changed_view(run: Run, number: int, weight: torch.Tensor) -> torch.Tensor:
    """A view that requires grad as its base does, and whose node nobody has asked for."""
    view = (torch.arange(16.0, device=run.device) + number)[:16].view(4, 4)
    view[:, :2].copy_(weight[:, 2:])
    return view


@program(tags="views errors")
def stale_view_is_an_argument(run: Run) -> None:
    model, other = run.put(Written()), run.put(nn.Linear(4, 4))
    optimizer = sgd(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        x = changed_view(run, step, other.weight)
        with run.expect_error("call"):
            model(x, writes=step % 4 == 3)
        with run.expect_error("behind"):
            x.mul_(1.0)
        model(torch.ones(4, 4, device=run.device)).sum().backward()
        run.see(weight=model.lin.weight.grad, x=x)
        optimizer.step()


@program(tags="views errors")
def stale_view_is_written_behind_a_call(run: Run) -> None:
    model, other = run.put(Written()), run.put(nn.Linear(4, 4))
    for step in range(STEPS):
        x = changed_view(run, step, other.weight)
        r = model(x)
        with run.expect_error("behind"):
            x.t_()
        r.sum().backward()
        run.see(r=r, x=x, leaf=x.is_leaf, node=type(x.grad_fn).__name__)


@program(tags="views errors")
def stale_view_is_a_result(run: Run) -> None:
    model = run.put(Returned())
    optimizer = sgd(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        whole, part = model(torch.ones(4, 4, device=run.device) + step)
        with run.expect_error("behind"):
            if step % 2 == 1:
                part.mul_(3.0)
        run.see(part=part, node=type(part.grad_fn).__name__)
        (whole.sum() + part.sum()).backward()
        run.see(weight=model.lin.weight.grad)
        optimizer.step()


@program(tags="views errors")
def weights_are_leaf_views(run: Run) -> None:
    """Of one flat tensor without gradients, which is stepped in place: they have no nodes, and are no stale views."""
    model = run.put(nn.Linear(4, 4))
    flat = torch.cat([p.detach().reshape(-1) for p in (model.weight, model.bias)])
    del model.weight, model.bias
    model.weight, model.bias = (flat[:16].view(4, 4)).requires_grad_(), flat[16:].requires_grad_()
    for step in range(STEPS):
        r = model(torch.ones(4, 4, device=run.device) * step).relu()
        r.sum().backward()
        run.see(r=r, weight=model.weight, gradient=model.weight.grad, leaf=model.weight.is_leaf)
        with torch.no_grad():
            flat.sub_(torch.cat([model.weight.grad.reshape(-1), model.bias.grad]), alpha=0.01)
        model.weight.grad = model.bias.grad = None


class Asking(nn.Module):
    """Asks for a gradient of a view that was made where gradients are off: it required grad before, as its base does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.requires_grad_()


@program(tags="views row32")
def view_without_gradients_asks_for_its_own(run: Run) -> None:
    model, lin = run.put(Asking()), run.put(nn.Linear(4, 4))
    for step in range(STEPS):
        x = lin(torch.ones(4, 4, device=run.device) + step)
        with torch.no_grad():
            view = x.t() if step % 8 != 7 else x.t().requires_grad_()
            r = model(view)
        (r.square().sum() + x.square().sum()).backward()
        run.see(r=r, leaf=r.is_leaf, gradient=view.grad, weight=lin.weight.grad)
        lin.zero_grad()


class Turned(nn.Module):
    """Returns a view that it makes with gradients on or off, whatever they were outside."""

    def __init__(self, gradients: bool) -> None:
        super().__init__()
        self.gradients = gradients

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.set_grad_enabled(self.gradients):
            return x.t()


def use_turned(run: Run, model: nn.Module, x: torch.Tensor, gradients: bool, weight: torch.Tensor) -> None:
    """In-place work on a view is an error or not, depending on how it and all before it were made."""
    with torch.set_grad_enabled(gradients):
        r = model(x)
    with run.expect_error("behind"):
        r.mul_(weight)
    run.see(r=r, node=type(r.grad_fn).__name__)
    if r.requires_grad:
        r.sum().backward()
    run.see(gradient=weight.grad)
    weight.grad = None


def argument_of_kind(run: Run, kind: str, step: int) -> torch.Tensor:
    x = torch.arange(16.0, device=run.device).view(4, 4) + step
    if kind == "several":
        return x.chunk(1)[0]
    with torch.set_grad_enabled(kind != "no_grad"):
        return x if kind == "base" else x.view(4, 4)


def turn_arguments(run: Run, usual: str, other: str, inside: bool, outside: bool) -> None:
    """With gradients `inside` of the module, and `outside` of it."""
    model, lin = run.put(Turned(inside)), run.put(nn.Linear(4, 4))
    for step in range(3 * STEPS):
        kind = other if step % 8 == 7 else usual
        use_turned(run, model, argument_of_kind(run, kind, step), outside, lin.weight)


@program(tags="views errors")
def view_of_a_view_with_gradients(run: Run) -> None:
    turn_arguments(run, "no_grad", "base", inside=True, outside=False)


@program(tags="views errors")
def view_of_a_view_without_gradients(run: Run) -> None:
    turn_arguments(run, "no_grad", "base", inside=False, outside=True)


@program(tags="views errors")
def view_of_one_of_several(run: Run) -> None:
    """chunk() makes several views; in-place work on one of them is an error, and on a view of it."""
    turn_arguments(run, "several", "view", inside=True, outside=True)


@program(tags="views errors")
def view_of_a_view_with_a_node(run: Run) -> None:
    model, lin = run.put(Turned(True)), run.put(nn.Linear(4, 4))
    for step in range(3 * STEPS):
        x = lin(torch.ones(4, 4, device=run.device) * step)
        part = x.chunk(1)[0] if step % 8 != 7 else x.view(4, 4)
        with run.expect_error("behind"):
            r = model(part)
            r.mul_(2.0)
        run.see(x=x, node=type(r.grad_fn).__name__)
        x.sum().backward()
        run.see(gradient=lin.weight.grad)
        lin.zero_grad()
