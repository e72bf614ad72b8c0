"""Modules that run a backward pass in their forward, as potentials of molecular dynamics do."""

from typing import Any, Callable

import torch
from common import Run, nn, program, see_step, see_tensors
from potentials import Dynamics, Potential, detached, energy_of, move


@program(tags="forces")
def forces_detached(run: Run) -> None:
    """Nothing that requires grad leaves; weights require grad."""
    move(run, run.put(Potential()))


@program(tags="forces")
def forces_frozen(run: Run) -> None:
    """No weight requires grad."""
    move(run, run.put(Potential()).requires_grad_(False))


@program(tags="forces")
def forces_without_gradients(run: Run) -> None:
    """The forward switches gradients on, under no_grad()."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        with torch.enable_grad():
            return detached(model, x)

    move(run, run.put(Potential(forces)), lambda step: torch.no_grad())


@program(tags="forces")
def forces_with_random_numbers(run: Run) -> None:
    """Dropout in the potential; random numbers are drawn afterwards, too."""
    move(run, run.put(Potential(detached, energy_of, nn.Dropout(0.3))))


@program(tags="forces")
def forces_and_training(run: Run) -> None:
    """Between two calls the weights are trained, by the energy alone."""
    model = run.put(Potential())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    dynamics = Dynamics(run)
    for _ in run.steps():
        dynamics.step(model)
        loss = model.net(run.randn(4, 3)).square().mean()
        loss.backward()
        see_step(run, loss, model, optimizer)


@program(tags="forces")
def forces_by_several_passes(run: Run) -> None:
    """Three passes through one graph, which is kept for the first two."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        parts = (model.net(x) * x).sum(0)
        rows = [torch.autograd.grad(parts[i], x, retain_graph=i < 2)[0] for i in range(3)]
        return parts.detach(), sum(rows), *rows

    move(run, run.put(Potential(forces)))


@program(tags="forces")
def forces_of_given_gradients(run: Run) -> None:
    """The caller gives the gradients of the outputs; one gradient is what came."""

    def forces(model: Potential, x: torch.Tensor, given: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        y = x + 0
        out = y * model.net(y)
        gradient, same, unused = torch.autograd.grad((out, y), (x, y, run.unused), (given, given), allow_unused=True)
        return out.detach(), gradient, same, unused

    run.unused = run.randn(2).requires_grad_()  # type: ignore[attr-defined]
    model = run.put(Potential(forces))
    dynamics = Dynamics(run)
    for _ in run.steps():
        dynamics.step(model, run.randn(5, 3))
        run.see(model=model)


# What leaves the call.


@program(tags="forces")
def forces_with_a_freed_graph(run: Run) -> None:
    """The energy requires grad, and its graph has gone: a pass through it is an error."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        energy = energy_of(model, x)
        return energy, -torch.autograd.grad(energy, x)[0]

    model = run.put(Potential(forces))
    dynamics = Dynamics(run)
    for _ in run.steps():
        energy = dynamics.step(model)
        with run.expect_error("second pass"):
            energy.backward()
        run.see(model=model)


@program(tags="forces")
def forces_with_a_kept_graph(run: Run) -> None:
    """The energy is trained on; its graph was kept for that."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        energy = energy_of(model, x)
        return energy, -torch.autograd.grad(energy, x, retain_graph=True)[0]

    model = run.put(Potential(forces))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    dynamics = Dynamics(run)
    for _ in run.steps():
        energy = dynamics.step(model)
        energy.backward()
        see_step(run, energy, model, optimizer)


@program(tags="forces")
def training_on_forces(run: Run) -> None:
    """The forces are differentiated: second derivatives."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        energy = energy_of(model, x)
        return energy, -torch.autograd.grad(energy, x, create_graph=True)[0]

    model = run.put(Potential(forces))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    for _ in run.steps():
        energy, found = model(run.randn(5, 3))
        loss = (energy - 1).square() + (found - run.randn(5, 3)).square().mean()
        loss.backward()
        see_step(run, loss, model, optimizer, energy=energy, forces=found)


@program(tags="forces")
def forces_after_a_second_derivative(run: Run) -> None:
    """The first pass inside is differentiated by the second one; all is detached."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        energy = energy_of(model, x)
        (gradient,) = torch.autograd.grad(energy, x, create_graph=True)
        (product,) = torch.autograd.grad(gradient.sum(), x)
        return energy.detach(), -gradient.detach(), product

    move(run, run.put(Potential(forces)))


KEPT: list[Any] = []


def add_keeper(name: str, about: str, keep: Callable[[Potential, torch.Tensor], Any]) -> None:
    def forces(model: Potential, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        energy = energy_of(model, x)
        (gradient,) = torch.autograd.grad(energy, x, retain_graph=True)
        keep(model, energy)
        return energy.detach(), -gradient

    @program(tags="forces", name=f"forces_kept_in_{name}")
    def kept(run: Run) -> None:
        KEPT.clear()
        model = run.put(Potential(forces))
        model.last = [None]
        dynamics = Dynamics(run)
        for _ in run.steps():
            dynamics.step(model)
            energy = KEPT[-1] if KEPT else model.last[0]
            energy.backward()
            see_tensors(run, kept=energy, count=len(KEPT))
            run.see(model=model)

    kept.__doc__ = about


add_keeper("an_attribute", "The energy, with its graph, is kept in the module.",
           lambda model, energy: model.last.__setitem__(0, energy))  # fmt: skip
add_keeper("a_list", "The energy, with its graph, is kept in a list outside.", lambda model, energy: KEPT.append(energy))


# What comes from outside.


@program(tags="forces")
def forces_of_an_argument(run: Run) -> None:
    """The caller's positions require grad; from some step on there is a hook on them."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        energy = energy_of(model, x)
        return energy.detach(), -torch.autograd.grad(energy, x)[0]

    model, seen = run.put(Potential(forces)), []
    dynamics = Dynamics(run)
    for step in run.steps():
        dynamics.x.requires_grad_()
        if step >= 12:
            dynamics.x.register_hook(lambda gradient: seen.append(float(gradient.sum())))
        dynamics.step(model, x_before=dynamics.x)
        dynamics.x = dynamics.x.detach()
        run.see(model=model, seen=list(seen))


@program(tags="forces")
def forces_of_an_argument_with_history(run: Run) -> None:
    """The caller's positions have a graph of their own, which the caller differentiates afterwards."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        energy = energy_of(model, x)
        return energy.detach(), -torch.autograd.grad(energy, x)[0]

    model = run.put(Potential(forces))
    for _ in run.steps():
        raw = run.randn(5, 3).requires_grad_()
        x = raw * 1.5
        energy, found = model(x)
        (x * found).sum().backward()
        see_tensors(run, energy=energy, forces=found, raw=raw, x=x)
        run.see(model=model)


def switched_on(model: Potential, x: torch.Tensor) -> Any:
    x.requires_grad_()
    energy = energy_of(model, x)
    return energy.detach(), -torch.autograd.grad(energy, x)[0]


@program(tags="forces")
def forces_switched_on_for_the_argument(run: Run) -> None:
    """The forward calls requires_grad_() on its argument; at some steps that is a view, requires grad or has a history."""
    model, seen = run.put(Potential(switched_on)), []
    dynamics = Dynamics(run)
    for step in run.steps():
        if step in (10, 13):
            dynamics.x = dynamics.x[:]
        elif step == 11:
            dynamics.x.requires_grad_().register_hook(lambda gradient: seen.append(float(gradient.sum())))
        elif step == 12:
            dynamics.x = dynamics.x.requires_grad_() * 1
        elif step == 14:
            dynamics.x.requires_grad_().register_hook(lambda gradient: None)
            dynamics.x.requires_grad_(False)
        dynamics.step(model, before=dynamics.x)
        run.see(model=model, seen=list(seen))


@program(tags="forces")
def forces_switched_on_and_used(run: Run) -> None:
    """What the forward made require grad is used by the caller's own graph afterwards."""
    model = run.put(Potential(switched_on))
    for _ in run.steps():
        x = run.randn(5, 3)
        energy, found = model(x)
        (x * found).sum().backward()
        see_tensors(run, energy=energy, forces=found, x=x)
        run.see(model=model)


@program(tags="forces")
def forces_in_a_dictionary(run: Run) -> None:
    """As libraries do: positions in a dictionary, to which the forces are added."""

    def forces(model: Potential, data: dict[str, torch.Tensor]) -> Any:
        data["energy"], data["forces"] = switched_on(model, data["positions"])
        return data

    model = run.put(Potential(forces))
    for _ in run.steps():
        data = {"positions": run.randn(5, 3)}
        see_tensors(run, result=model(data), data=data)
        run.see(model=model)


@program(tags="forces")
def switched_on_without_a_pass(run: Run) -> None:
    """requires_grad_() on an argument, and no pass."""

    def forward(model: Potential, x: torch.Tensor) -> Any:
        return energy_of(model, x.requires_grad_()).detach(), x.detach() * 2

    model = run.put(Potential(forward))
    dynamics = Dynamics(run)
    for _ in run.steps():
        dynamics.step(model, before=dynamics.x)
        run.see(model=model)


@program(tags="forces")
def forces_with_features_of_the_caller(run: Run) -> None:
    """What the caller computed under autograd is a factor; the caller's own pass comes later."""

    def forces(model: Potential, x: torch.Tensor, features: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        energy = (model.net(x) * features).sum()
        return energy.detach(), -torch.autograd.grad(energy, x)[0]

    model = run.put(Potential(forces))
    dynamics = Dynamics(run)
    weight = run.randn(5, 1).requires_grad_()
    for _ in run.steps():
        features = weight.exp()
        dynamics.step(model, features)
        features.sum().backward()
        run.see(model=model, weight=weight)


@program(tags="forces")
def gradients_of_a_weight_inside(run: Run) -> None:
    """Gradients of a weight are asked for, on which a hook comes to be."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        energy = energy_of(model, x)
        (gradient,) = torch.autograd.grad(energy, model.net[0].weight)
        return energy.detach(), gradient.sum() * x

    model, seen = run.put(Potential(forces)), []

    def before(step: int) -> None:
        if step == 12:
            model.net[0].weight.register_hook(lambda gradient: seen.append(float(gradient.sum())))

    move(run, model, before, seen=seen)
