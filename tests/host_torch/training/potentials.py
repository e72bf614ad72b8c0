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


def freed(model: Potential, x: torch.Tensor) -> Any:
    x = x.detach().requires_grad_()
    energy = model.energy(model, x)
    return energy, -torch.autograd.grad(energy, x)[0]


def see_errors(run: Run, energy: torch.Tensor, model: nn.Module) -> None:
    """Passes over the energy, which fail, and what they leave in the weights."""
    with run.expect_error("backward"):
        energy.backward()
    with run.expect_error("backward once more, kept"):
        energy.backward(retain_graph=True)
    with run.expect_error("gradients of weights"):
        run.see(found=torch.autograd.grad(energy, list(model.parameters()), allow_unused=True))
    with run.expect_error("second derivative"):
        run.see(found=torch.autograd.grad(energy * 2, list(model.parameters())[-2:], create_graph=True, allow_unused=True))
    with run.expect_error("gradient of itself"):
        run.see(itself=torch.autograd.grad(energy * 3, energy)[0])
    with run.expect_error("of nothing behind it"):
        run.see(nothing=torch.autograd.grad(energy, torch.zeros(1, device=energy.device).requires_grad_()))
    see_tensors(run, energy=energy)
    run.see(model=model)


def run_energies(run: Run, model: nn.Module, use: Callable[[int, Any], Any], *given: Callable[[], Any]) -> None:
    """Steps of dynamics; `use` gets the step's number and the energy."""
    dynamics = Dynamics(run)
    for step in run.steps():
        use(step, dynamics.step(model, *(make() for make in given)))
        run.see(model=model)


class Atoms(nn.Module):
    """Kinds of atoms, neighbours and sums, as SchNet has them."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds, self.first, self.filter = nn.Embedding(4, 8), nn.Linear(8, 8), nn.Linear(1, 8)
        self.last = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, kinds: torch.Tensor, pairs: torch.Tensor) -> Any:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            far = (x[pairs[0]] - x[pairs[1]]).square().sum(1, keepdim=True)
            h = self.first(self.kinds(kinds))
            messages = h[pairs[1]] * torch.tanh(self.filter(far))
            h = h + torch.zeros_like(h).index_add(0, pairs[0], messages)
            energy = self.last(torch.tanh(h)).sum()
            return energy, -torch.autograd.grad(energy, x)[0]


def kinds_and_pairs(run: Run) -> list[Callable[[], torch.Tensor]]:
    pairs = torch.tensor([[i, j] for i in range(5) for j in range(5) if i != j]).t().contiguous().to(run.device)
    return [lambda: run.randint(4, 5), lambda: pairs]
