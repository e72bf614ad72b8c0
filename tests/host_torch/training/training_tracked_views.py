"""Results that are views whose operators are known (torch.autograd._force_original_view_tracking), and are written to."""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from common import Run, nn, program, sgd, traits

Make = Callable[[nn.Module, torch.Tensor], torch.Tensor]
force = torch.autograd._force_original_view_tracking


class Viewing(nn.Module):
    """`make(module, x)`, maybe with tracked views inside."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self.lin, self.make, self.tracks = nn.Linear(4, 4), make, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with force(True) if self.tracks else contextlib.nullcontext():
            return self.make(self, x)


def softmax_turned(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1).t()


MAKES: dict[str, Make] = {
    "turned": softmax_turned,
    "layer_turned": lambda m, x: m.lin(x).t(),
    "cut": lambda m, x: (m.lin(x) * 2.0)[1:],
    "viewed": lambda m, x: torch.softmax(m.lin(x), -1).view(2, 8),
    "selected": lambda m, x: m.lin(torch.softmax(x, -1)).select(0, 1),
    "cut_and_turned": lambda m, x: m.lin(torch.softmax(x, -1))[1:].t(),
    "argument_turned": lambda m, x: (m.lin(x) * 2.0 + 1.0, x.t())[1],
    "no_view": lambda m, x: m.lin(torch.softmax(x, -1)) * 2.0,
    "parts_of_numbers": lambda m, x: torch.view_as_real(torch.complex(x, m.lin(x))),
}

# When views are tracked: around the call, inside of it, in some steps.
MOMENTS: dict[str, Callable[[int, Viewing], Any]] = {}


def moment(function: Callable[[int, Viewing], Any]) -> None:
    MOMENTS[function.__name__] = function


@moment
def around(step: int, model: Viewing) -> Any:
    return force(True)


@moment
def inside(step: int, model: Viewing) -> Any:
    model.tracks = True
    return contextlib.nullcontext()


@moment
def late(step: int, model: Viewing) -> Any:
    return force(step > 8)


@moment
def late_inside(step: int, model: Viewing) -> Any:
    model.tracks = step > 8
    return contextlib.nullcontext()


@moment
def in_turns(step: int, model: Viewing) -> Any:
    return force(step % 2 == 1)


@moment
def never(step: int, model: Viewing) -> Any:
    return contextlib.nullcontext()


def see_view(run: Run, name: str, r: torch.Tensor) -> None:
    run.see(**{name: r, f"traits of {name}": traits(r), f"node of {name}": r.grad_fn.name() if r.grad_fn else "none"})
    base = r._base
    if base is not None:
        run.see(**{f"base of {name}": base})


def train(run: Run, make: Make, when: Any, gradients: bool) -> None:
    before, model = run.put(nn.Linear(4, 4)), run.put(Viewing(make))
    optimizer = sgd(nn.ModuleList([before, model]))
    scale = torch.full((), 1.5, device=run.device, requires_grad=True)
    for step in run.steps():
        x = before(run.randn(4, 4)) * 1 if gradients else run.randn(4, 4)
        model.requires_grad_(gradients)
        with when(step, model):
            r = model(x)
        see_view(run, "result", r)
        with run.expect_error("written"):
            (r if step % 2 or r._base is None else r._base).mul_(scale)
        see_view(run, "written", r)
        with run.expect_error("backward"):
            r.abs().sum().backward()
        run.see(model=model, before=before, scale=scale)
        optimizer.step()
        optimizer.zero_grad()


def add(name: str, make: Make, when: Any, gradients: bool) -> None:
    @program(tags="views results", name=name)
    def viewed(run: Run) -> None:
        """Results that are tracked views."""
        train(run, make, when, gradients)


for label, each in MAKES.items():
    for how, when in MOMENTS.items():
        add(f"tracked_view_{label}_{how}", each, when, True)
for label in ("turned", "cut", "argument_turned"):
    for how in ("around", "inside", "late", "never"):
        add(f"tracked_view_{label}_{how}_without_gradients", MAKES[label], MOMENTS[how], False)
