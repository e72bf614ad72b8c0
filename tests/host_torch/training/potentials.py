"""A small potential whose forward gives forces, and steps of dynamics."""

import contextlib
from typing import Any, Callable, Optional

import torch
from common import Run, nn, see_tensors

Energy = Callable[["Potential", torch.Tensor], torch.Tensor]


def energy_of(model: "Potential", x: torch.Tensor) -> torch.Tensor:
    return (model.net(x) * (x * x).sum(1, keepdim=True)).sum()


def detached(model: "Potential", x: torch.Tensor) -> Any:
    x = x.detach().requires_grad_()
    energy = model.energy(model, x)
    (gradient,) = torch.autograd.grad(energy, x)
    return energy.detach(), -gradient


class Potential(nn.Module):
    """`forces` is its forward, `energy` what that differentiates."""

    def __init__(self, forces: Callable[..., Any] = detached, energy: Energy = energy_of, *more: nn.Module) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), *more, nn.Linear(8, 1))
        self.forces, self.energy = forces, energy

    def forward(self, *given: Any) -> Any:
        return self.forces(self, *given)


class Dynamics:
    """Steps of a few atoms in new tensors."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.x, self.v = run.randn(5, 3), run.randn(5, 3)

    def step(self, model: nn.Module, *more: Any, **seen: Any) -> Any:
        energy, forces, *rest = model(self.x, *more)
        with torch.no_grad():
            self.v = self.v + 0.05 * forces
            self.x = self.x + 0.05 * self.v
        see_tensors(self.run, energy=energy, forces=forces, x=self.x, rest=rest, **seen)
        return energy


def move(run: Run, model: nn.Module, before: Optional[Callable[[int], Any]] = None, **seen: Any) -> None:
    """`before` may give a context for the step."""
    dynamics = Dynamics(run)
    for step in run.steps():
        context = before(step) if before is not None else None
        with context or contextlib.nullcontext():
            dynamics.step(model)
        run.see(model=model, **{name: list(value) for name, value in seen.items()})
