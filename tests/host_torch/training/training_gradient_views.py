"""Gradients that are views: what they are views of, which of them share a base or memory, and what is done with them."""

from collections.abc import Callable
from typing import Any

import torch
from common import F, Run, nn, program, traits

Make = Callable[[nn.Module, torch.Tensor], Any]
Use = Callable[[Run, int, nn.Module, torch.Tensor, torch.Tensor], None]


class Layered(nn.Module):
    """`make(module, x)` with a layer and some parameters."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self.lin, self.norm, self.conv, self.make = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Conv1d(1, 1, 3, padding=1), make
        for name, shape in {"row": (1, 4), "line": (4,), "more": (4,), "square": (2, 2), "flat": (16,), "one": (1,)}.items():
            self.register_parameter(name, nn.Parameter(torch.linspace(0.5, 1.5, torch.Size(shape).numel()).view(shape)))

    def forward(self, x: torch.Tensor) -> Any:
        return self.make(self, x)


def shared_with_a_view(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Of one gradient inside, the one parameter gets a view, the other one itself."""
    return (m.square.view(4) + m.line) * m.lin(x)[0] * 2.0


def shared_by_three(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (m.square.view(4) + m.line + m.more) * m.lin(x)[0].detach() * 2.0


def shared_with_a_layer(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A parameter gets the gradient that goes on to a layer."""
    return torch.tanh(m.lin(x)[0] + m.line) * 2.0


def shared_with_a_result(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return m.lin(x)[0] + m.line


def two_views_of_one(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (m.square.view(4) + m.row.view(4)) * m.lin(x)[0].detach()


def view_of_what_came(m: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return m.square.view(4) + m.line, m.lin(x)


def empty_parts(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return m.lin(x).sum() + (m.line[:0] * m.more[:0]).sum()


MAKES: dict[str, Make] = {
    "plain": lambda m, x: m.lin(x),
    "normed": lambda m, x: m.norm(m.lin(x)),
    "expanded": lambda m, x: m.lin(x).expand(2, *x.shape),
    "matmul": lambda m, x: (x @ m.lin(x))[1:] if x.shape[0] == 4 else m.lin(x) @ m.lin(x).t(),
    "three_dimensions": lambda m, x: m.lin(x.unsqueeze(1)),
    "bias_by_hand": lambda m, x: x @ m.lin.weight + m.line,
    "row_by_hand": lambda m, x: (x @ m.lin.weight) * 2.0 + m.row,
    "scaled": lambda m, x: m.lin(x) * m.line * m.row * m.one,
    "number": lambda m, x: m.lin(x) * m.one.squeeze() + m.one,
    "convolved": lambda m, x: m.conv(x.unsqueeze(1)).squeeze(1),
    "convolved_and_turned": lambda m, x: m.conv(m.lin(x).unsqueeze(1)).transpose(0, 2),
    "weight_viewed": lambda m, x: F.linear(x, m.flat.view(4, 4), m.square.view(4)),
    "weight_turned": lambda m, x: x @ m.lin.weight.t().t() + m.square.t().reshape(4),
    "weight_unsqueezed": lambda m, x: torch.tanh(x * m.line.unsqueeze(0) + m.more[None]),
    "weight_expanded": lambda m, x: x * m.row.expand(x.shape[0], 4) + m.line.expand_as(x),
    "weight_cut": lambda m, x: x * m.flat[4:8] + m.flat.view(4, 4)[1],
    "weight_selected": lambda m, x: x * m.flat.view(4, 4).select(0, 2) + m.flat.narrow(0, 2, 4),
    "joined": lambda m, x: x * torch.cat([m.square.view(4)[:2], m.line[2:]]) + torch.stack([m.line, m.more]).sum(0),
    "diagonal": lambda m, x: x * m.flat.view(4, 4).diagonal(),
    "shared_with_a_view": shared_with_a_view,
    "shared_by_three": shared_by_three,
    "shared_with_a_layer": shared_with_a_layer,
    "shared_with_a_result": shared_with_a_result,
    "two_views_of_one": two_views_of_one,
    "view_of_what_came": view_of_what_came,
    "empty_parts": empty_parts,
    "two_layers": lambda m, x: m.lin(torch.tanh(m.lin(x))),
}


def base_text(base: torch.Tensor) -> str:
    return f"{traits(base)} {base.dtype} {tuple(base.shape)} {base.stride()} of {base.untyped_storage().nbytes()} bytes"


def see_gradients(run: Run, name: str, gradients: Any) -> None:
    """Records all that shows of gradients: their bases, and which are the same tensor, base or memory."""
    named = list(enumerate(gradients))
    bases: dict[int, str] = {id(each): f"gradient {i}" for i, each in reversed(named) if each is not None}
    memory: dict[int, int] = {}
    held = []  # as long as their identities stand for them
    for i, each in named:
        if each is None:
            run.see(**{f"{name} {i}": None})
            continue
        base = each._base
        held.append(base)
        memory.setdefault(each.untyped_storage().data_ptr(), i)
        with run.expect_error(f"{name} {i}"):  # a view made without gradients, whose base requires grad by now
            run.see(**{f"{name} {i}": each})
            text = f"{traits(each)} is {bases[id(each)]} of {each.untyped_storage().nbytes()} bytes"
            run.see(**{f"traits of {name} {i}": text})
        if each.numel():
            run.see(**{f"memory of {name} {i}": memory[each.untyped_storage().data_ptr()]})
        if base is not None:
            run.see(**{f"base of {name} {i}": bases.setdefault(id(base), f"that of {i}")})
            run.see(**{f"base of {name} {i}, itself": base})
            run.see(**{f"traits of the base of {name} {i}": base_text(base)})


def loss_of(found: Any) -> torch.Tensor:
    parts = [found] if isinstance(found, torch.Tensor) else list(found)
    return torch.stack([part.sin().square().sum() * (i + 1) for i, part in enumerate(parts)]).sum()


def wanted(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    return [*model.parameters(), *([x] if x.requires_grad else [])]


def asked(run: Run, step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor) -> None:
    see_gradients(run, "gradient", torch.autograd.grad(loss, wanted(model, x), allow_unused=True))


def asked_twice(run: Run, step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor) -> None:
    kept = torch.autograd.grad(loss, wanted(model, x), allow_unused=True, retain_graph=True)
    again = torch.autograd.grad(loss, wanted(model, x), allow_unused=True)
    see_gradients(run, "gradient", [*kept, *again])


def accumulated(run: Run, step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor) -> None:
    loss.backward(retain_graph=step % 3 == 1)
    if step % 3 == 1:
        loss.backward()
    see_gradients(run, "accumulated", [each.grad for each in wanted(model, x)])
    if step % 2:
        model.zero_grad()


def hooked(run: Run, step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor) -> None:
    met: list[torch.Tensor] = []
    handles = [each.register_hook(met.append) for each in wanted(model, x)]
    loss.backward()
    see_gradients(run, "met", met)
    for handle in handles:
        handle.remove()
    model.zero_grad()


def worked_on(run: Run, step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor) -> None:
    gradients = torch.autograd.grad(loss, wanted(model, x), allow_unused=True)
    for each in gradients:
        if each is None:
            continue
        with run.expect_error("written"):
            (each if step % 2 else each if each._base is None else each._base).mul_(2.0)
        with run.expect_error("requires grad"):
            each.requires_grad_()
            (each * 2).sum().backward()
            each.mul_(3.0)
    see_gradients(run, "gradient", gradients)


def of_one_alone(run: Run, step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor) -> None:
    of = model.lin.bias if step < 10 else model.square
    see_gradients(run, "gradient", torch.autograd.grad(loss, [of], allow_unused=True))


def tracked(run: Run, step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor) -> None:
    with torch.autograd._force_original_view_tracking(step % 6 != 4):
        gradients = torch.autograd.grad(loss, wanted(model, x), allow_unused=True)
    scale = torch.ones((), device=x.device, requires_grad=True)
    for each in gradients:
        if each is not None and each._base is not None and step % 2:
            each._base.mul_(scale)
    see_gradients(run, "gradient", gradients)


USES: dict[str, Use] = {
    use.__name__: use for use in (asked, asked_twice, accumulated, hooked, worked_on, of_one_alone, tracked)
}


def add(name: str, make: Make, use: Use, rows: int) -> None:
    @program(tags="views gradients", name=name)
    def gradients(run: Run) -> None:
        """Gradients that are views."""
        model = run.put(Layered(make))
        for step in run.steps():
            x = run.randn(rows, 4).requires_grad_(use is not accumulated and step % 6 == 5)
            use(run, step, model, x, loss_of(model(x)))


for label, each in MAKES.items():
    add(f"gradient_views_{label}", each, asked, 4)
    add(f"gradient_views_{label}_accumulated", each, accumulated, 4)
    add(f"gradient_views_{label}_hooked", each, hooked, 4)
    if label != "normed":
        add(f"gradient_views_{label}_one_row", each, asked, 1)
for label in ("normed", "expanded", "row_by_hand", "weight_viewed", "shared_with_a_view", "shared_with_a_layer", "view_of_what_came"):
    for how, use in USES.items():
        if how not in ("asked", "accumulated", "hooked"):
            add(f"gradient_views_{label}_{how}", MAKES[label], use, 4)
