"""Potentials that return energies which require grad beside forces. The pass inside of the call has freed their graphs."""

import weakref
from typing import Any, Callable

import torch
from common import Run, nn, program, see_step, see_tensors, traits
from potentials import Atoms, Dynamics, Potential, energy_of, freed, kinds_and_pairs, run_energies, see_errors

Forces = Callable[..., Any]


@program(tags="forces")
def energies_never_differentiated(run: Run) -> None:
    """As most programs do: the energy is printed, detached and copied."""
    model = run.put(Potential(freed))
    run_energies(run, model, lambda _, energy: run.see(number=energy.item(), detached=energy.detach().cpu()))


@program(tags="forces")
def energies_with_frozen_weights(run: Run) -> None:
    model = run.put(Potential(freed)).requires_grad_(False)
    run_energies(run, model, lambda step, energy: see_errors(run, energy, model) if step % 3 else None)


@program(tags="forces")
def energies_in_passes(run: Run) -> None:
    """Each pass over the energy is an error."""
    model = run.put(Potential(freed))
    run_energies(run, model, lambda _, energy: see_errors(run, energy, model))


@program(tags="forces")
def energies_with_penalties(run: Run) -> None:
    """Terms that were made before the call, and after it: what comes before the error is added up."""
    model = run.put(Potential(freed))
    weight, other = run.randn(3).requires_grad_(), run.randn(3).requires_grad_()
    dynamics = Dynamics(run)
    for _ in run.steps():
        before = weight.square().sum()
        energy = dynamics.step(model)
        after = other.square().sum()
        loss = energy * after + before + after
        with run.expect_error("loss"):
            loss.backward()
        see_tensors(run, loss=loss, weight=weight, other=other)
        run.see(beside=torch.autograd.grad((energy * other).sum(), other))
        with run.expect_error("mixed"):
            run.see(both=torch.autograd.grad((energy * other).sum(), [other, model.net[0].weight]))
        run.see(model=model)
        weight.grad = other.grad = None
        model.zero_grad()


@program(tags="forces hooks")
def energies_hooked(run: Run) -> None:
    """Hooks on the energy, and its own gradient."""
    model, seen = run.put(Potential(freed)), []

    def use(step: int, energy: torch.Tensor) -> None:
        energy.register_hook(lambda gradient: seen.append(float(gradient)))
        if step % 2:
            energy.retain_grad()
        with run.expect_error("backward"):
            (energy * 2).backward()
        see_tensors(run, grad=energy.grad, energy=energy)
        run.see(seen=list(seen))

    run_energies(run, model, use)


@program(tags="forces")
def energies_moved(run: Run) -> None:
    """detach_(), work in place, requires_grad_(False), copies."""
    model = run.put(Potential(freed))

    def use(step: int, energy: torch.Tensor) -> None:
        with run.expect_error("requires_grad_"):
            energy.requires_grad_(False)
        with run.expect_error("copy"):
            import copy

            copy.deepcopy(energy)
        if step % 3 == 0:
            energy.detach_()
        elif step % 3 == 1:
            energy.mul_(2)
        else:
            energy = energy.clone() + 1
        see_errors(run, energy, model)

    run_energies(run, model, use)


@program(tags="forces")
def energies_of_atoms(run: Run) -> None:
    """Energies of atoms are a result, of which the energy is the sum: gradients between the two can be had."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        atoms = model.net(x) * (x * x).sum(1, keepdim=True)
        energy = atoms.sum()
        return energy, -torch.autograd.grad(energy, x)[0], atoms

    model, seen = run.put(Potential(forces)), []
    dynamics = Dynamics(run)
    for step in run.steps():
        energy, found, atoms = model(dynamics.x)
        dynamics.x = (dynamics.x + 0.05 * found).detach()
        run.see(between=torch.autograd.grad(energy, atoms, retain_graph=step % 2 == 0))
        if step % 3 == 0:
            atoms.register_hook(lambda gradient: seen.append(float(gradient.sum())))
        see_errors(run, energy, model)
        see_errors(run, atoms.sum(), model)
        run.see(seen=list(seen))


class Shifted(Potential):
    def __init__(self, forces: Forces) -> None:
        super().__init__(forces)
        self.shift, self.reference = nn.Parameter(torch.ones(1)), nn.Embedding(4, 1)


@program(tags="forces")
def energies_with_a_shift(run: Run) -> None:
    """What is added to the energy has a gradient, which comes before the error."""

    def forces(model: Any, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        energy = energy_of(model, x) + model.shift
        return energy, -torch.autograd.grad(energy.sum(), x)[0]

    model = run.put(Shifted(forces))
    run_energies(run, model, lambda step, energy: see_errors(run, energy, model) if step % 4 < 2 else None)


@program(tags="forces")
def energies_with_references(run: Run) -> None:
    """Each kind of atom has an energy of its own, whose gradient can be had all the same."""

    def forces(model: Any, x: torch.Tensor, kinds: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        energy = energy_of(model, x) + model.reference(kinds).sum()
        return energy, -torch.autograd.grad(energy, x)[0]

    model = run.put(Shifted(forces))

    def use(step: int, energy: torch.Tensor) -> None:
        if step % 4 < 2:
            run.see(reference=torch.autograd.grad(energy, model.reference.weight, retain_graph=True))
            see_errors(run, energy, model)

    run_energies(run, model, use, lambda: run.randint(4, 5))


@program(tags="forces")
def energies_of_pairs(run: Run) -> None:
    model = run.put(Atoms())
    given = kinds_and_pairs(run)
    run_energies(run, model, lambda step, energy: see_errors(run, energy, model) if step % 2 else None, *given)


@program(tags="forces")
def energies_without_gradients(run: Run) -> None:
    """The caller works under no_grad()."""
    model = run.put(Atoms())
    dynamics, given = Dynamics(run), kinds_and_pairs(run)
    for step in run.steps():
        with torch.no_grad():
            energy = dynamics.step(model, *(make() for make in given))
        if step % 2:
            see_errors(run, energy, model)


@program(tags="forces")
def energies_masked(run: Run) -> None:
    """A node that was not freed keeps an argument; that changes before the pass, and between two passes."""

    class Masked(Atoms):
        def forward(self, x: torch.Tensor, kinds: torch.Tensor, pairs: torch.Tensor, mask: torch.Tensor) -> Any:
            energy, forces = super().forward(x, kinds, pairs)
            return (energy * mask).sum(), forces

    model, masks = run.put(Masked()), []

    def make() -> torch.Tensor:
        masks.append(run.randn(4))
        return masks[-1]

    def use(step: int, energy: torch.Tensor) -> None:
        if step % 4 == 1:
            masks[-1].add_(1)
        if step % 4 == 2:
            with run.expect_error("first"):
                energy.backward(retain_graph=step % 8 < 4)
            masks[-1].add_(1)
        see_errors(run, energy, model)

    run_energies(run, model, use, *kinds_and_pairs(run), make)


@program(tags="forces")
def energies_switched_on(run: Run) -> None:
    """requires_grad_() on the caller's positions, which the caller asks for gradients."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        x.requires_grad_()
        energy = energy_of(model, x)
        return energy, -torch.autograd.grad(energy, x)[0]

    model = run.put(Potential(forces))
    for step in run.steps():
        x = run.randn(5, 3)
        if step > 14:
            x = x[:]
        energy, found = model(x)
        see_tensors(run, x=x, energy=energy, forces=found)
        with run.expect_error("of positions"):
            run.see(more=torch.autograd.grad(energy, x, retain_graph=True))
        with run.expect_error("backward"):
            ((x * x).sum() + energy).backward()
        see_tensors(run, x=x)
        run.see(model=model)


@program(tags="forces")
def energies_of_positions_with_a_history(run: Run) -> None:
    """The positions are the caller's, with a graph that is not freed."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        energy = energy_of(model, x)
        return energy, -torch.autograd.grad(energy, x)[0]

    model = run.put(Potential(forces))
    for step in run.steps():
        raw = run.randn(5, 3).requires_grad_()
        x = raw * 1.5 if step % 4 else raw
        energy, found = model(x)
        see_tensors(run, x=x, energy=energy, forces=found)
        with run.expect_error("through the call"):
            (energy + x.sum()).backward(retain_graph=True)
        see_tensors(run, raw=raw)
        (x * found).sum().backward()
        see_tensors(run, raw_later=raw)
        run.see(model=model)


@program(tags="forces")
def energies_in_a_dictionary(run: Run) -> None:
    """As libraries do: results are added to the dictionary of the argument."""

    def forces(model: Potential, data: dict[str, torch.Tensor]) -> Any:
        data["positions"].requires_grad_()
        data["energy"] = energy_of(model, data["positions"])
        data["forces"] = -torch.autograd.grad(data["energy"], data["positions"])[0]
        return data

    model = run.put(Potential(forces))
    for step in run.steps():
        data = {"positions": run.randn(5, 3)}
        result = model(data)
        see_tensors(run, result=result, data=data)
        if step % 2:
            see_errors(run, data["energy"], model)
        run.see(model=model)


@program(tags="forces")
def energies_without_anything_saved(run: Run) -> None:
    """Nodes that keep nothing run as often as somebody likes."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        energy = (x + model.net[0].bias[:3]).sum()
        return energy, -torch.autograd.grad(energy, x)[0]

    model = run.put(Potential(forces))
    run_energies(run, model, lambda step, energy: see_errors(run, energy, model) if step % 2 else None)


@program(tags="forces")
def energies_partly_freed(run: Run) -> None:
    """Of two energies of one body the second one has a graph of its own above it; one head is not freed at all."""

    def forces(model: Any, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        energy = energy_of(model, x)
        other = model.reference.weight.square().sum()
        (gradient,) = torch.autograd.grad(energy, x)
        return energy, -gradient, other, energy * 2 + other

    model = run.put(Shifted(forces))
    dynamics = Dynamics(run)
    for step in run.steps():
        energy, found, other, both = model(dynamics.x)
        dynamics.x = (dynamics.x + 0.05 * found).detach()
        with run.expect_error("both"):
            both.backward(retain_graph=step % 2 == 0)
        run.see(model=model)
        with run.expect_error("other"):
            other.backward()
        see_errors(run, energy, model)


@program(tags="forces")
def energies_kept_for_later(run: Run) -> None:
    """Energies of all steps, over which passes come when weights and positions are others."""
    model = run.put(Potential(freed))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    kept: list[torch.Tensor] = []
    dynamics = Dynamics(run)
    for step in run.steps():
        kept.append(dynamics.step(model))
        loss = model.net(run.randn(4, 3)).square().mean()
        loss.backward()
        see_step(run, loss, model, optimizer)
        see_errors(run, kept[step // 2], model)
    run.see(all=[traits(energy) for energy in kept])


@program(tags="forces")
def energies_and_training_on_forces(run: Run) -> None:
    """In training the pass inside of the call is differentiated; in evaluation it is not."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        energy = energy_of(model, x)
        return energy, -torch.autograd.grad(energy, x, create_graph=model.training)[0]

    model = run.put(Potential(forces))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    for step in run.steps(36):
        model.train(step % 12 >= 8)
        energy, found = model(run.randn(5, 3))
        see_tensors(run, energy=energy, forces=found)
        if not model.training:
            see_errors(run, energy, model)
            continue
        loss = (energy - 1).square() + (found - run.randn(5, 3)).square().mean()
        loss.backward()
        see_step(run, loss, model, optimizer)


@program(tags="forces")
def energies_live_as_long(run: Run) -> None:
    """Ends of arguments, energies and modules are seen by weak references."""
    model = run.put(Potential(freed))
    ends: list[Any] = []
    kept: list[torch.Tensor] = []
    for step in run.steps():
        x = run.randn(5, 3)
        energy, found = model(x)
        for value in (x, energy, found):
            ends.append(weakref.ref(value))
        if step % 2:
            kept.append(energy)
        del x, energy, found, value
        run.see(alive=[end() is not None for end in ends])
        if step == 15:
            model = run.put(Potential(freed))
            with run.expect_error("module is gone"):
                kept[-1].backward()
