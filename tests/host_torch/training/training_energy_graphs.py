"""Energies that require grad beside forces: several passes, graphs, heads and threads, and work after the pass."""

from typing import Any, Callable

import torch
from common import Run, nn, program, see_step, see_tensors
from potentials import Atoms, Dynamics, Potential, energy_of, freed, kinds_and_pairs, move, run_energies, see_errors

Forces = Callable[..., Any]


def run_in_two_ways(run: Run, forces: Forces, way: Callable[[int], bool]) -> None:
    """Passes over energies of a potential that is told, in each step, which way to go."""
    model = run.put(Potential(forces))
    dynamics = Dynamics(run)
    for step in run.steps(24):
        energy = dynamics.step(model, way(step))
        see_errors(run, energy, model)
        model.zero_grad()


@program(tags="forces")
def energies_and_anomalies(run: Run) -> None:
    """Somebody looks for anomalies around the call, or around the pass."""
    model = run.put(Potential(freed))
    dynamics = Dynamics(run)
    for step in run.steps():
        with torch.autograd.set_detect_anomaly(step > 6 and step % 3 == 1):
            energy = dynamics.step(model)
        with torch.autograd.set_detect_anomaly(step > 6 and step % 3 == 2):
            see_errors(run, energy, model)


@program(tags="forces")
def energies_of_several_passes(run: Run) -> None:
    """The graph is kept for the first pass, and freed by the second; some steps keep it after all."""

    def forces(model: Potential, x: torch.Tensor, keep: bool) -> Any:
        x = x.detach().requires_grad_()
        energy = energy_of(model, x)
        (first,) = torch.autograd.grad(energy, x, retain_graph=True)
        (second,) = torch.autograd.grad(energy * 2, x, retain_graph=keep)
        return energy, -first - second

    run_in_two_ways(run, forces, lambda step: step % 3 == 2)


@program(tags="forces")
def energies_whose_pass_fails(run: Run) -> None:
    """The forward asks for a gradient that is none, and goes on without; or has freed the graph already."""

    def forces(model: Potential, x: torch.Tensor, twice: bool) -> Any:
        x = x.detach().requires_grad_()
        energy = energy_of(model, x)
        try:
            if twice:
                torch.autograd.grad(energy, model.net[0].weight)
            (gradient,) = torch.autograd.grad(energy, x if twice else x.detach().requires_grad_())
        except RuntimeError:
            gradient = torch.zeros_like(x)
        return energy, -gradient

    run_in_two_ways(run, forces, lambda step: step < 12)


@program(tags="forces hooks")
def energies_with_a_hook_on_their_node(run: Run) -> None:
    """A hook before the node is called, and one behind it is not: the node is freed."""

    def energy(model: Potential, x: torch.Tensor) -> torch.Tensor:
        return (model.net(x) * (x * x).sum(1, keepdim=True)).mean().exp()

    model, seen = run.put(Potential(freed, energy)), []

    def use(step: int, energy: torch.Tensor) -> None:
        if step in (13, 15):
            energy.grad_fn.register_hook(lambda made, came: seen.append(float(came[0])))
        if step in (14, 15):
            energy.grad_fn.register_prehook(lambda came: seen.append(float(came[0])))
        with run.expect_error("backward"):
            energy.backward()
        run.see(seen=list(seen))

    run_energies(run, model, use)


@program(tags="forces")
def energies_of_a_module_inside(run: Run) -> None:
    """The potential is a part of another module, whose result is trained."""

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.potential, self.head = Potential(freed), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> Any:
            energy, forces = self.potential(x)
            return self.head(x + forces).square().mean(), energy

    model = run.put(Outer())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    for step in run.steps():
        loss, energy = model(run.randn(5, 3))
        loss.backward()
        see_step(run, loss, model, optimizer, energy=energy)
        if step % 3 == 2:
            see_errors(run, energy, model)
            model.zero_grad()


@program(tags="forces")
def energies_with_masks_changed_inside(run: Run) -> None:
    """Work in place inside of the call, before its pass; what is worked on is part of a product, or summed alone."""

    def energy(model: Potential, x: torch.Tensor) -> torch.Tensor:
        y = model.net(x) * 1
        y[1:3] = 0.5
        y[3].mul_(x[0, 0])
        y.mul_(2)
        return (y * x).sum()

    def alone(model: Potential, x: torch.Tensor) -> torch.Tensor:
        y = model.net(x) * 1
        y[1:3] = 0.5
        y[3].mul_(x[0, 0])
        return y.sum()

    for kind in (energy, alone):
        model = run.put(Potential(freed, kind))
        run_energies(run, model, lambda step, energy, model=model: see_errors(run, energy, model) if step % 2 else None)
    move(run, model)


@program(tags="forces")
def energies_computed_after_the_pass(run: Run) -> None:
    """The last node was made after the pass and keeps its result, which changes."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        energy, found = freed(model, x)
        return (energy * 0.1).exp(), found

    model = run.put(Potential(forces))

    def use(step: int, energy: torch.Tensor) -> None:
        if step % 4 == 1:
            with torch.no_grad():
                energy.mul_(2)
        if step % 4 == 2:
            with run.expect_error("first"):
                energy.backward(retain_graph=step % 8 < 4)
            with torch.no_grad():
                energy.add_(1)
        if step % 4 == 3:
            energy.mul_(2)
        see_errors(run, energy, model)

    run_energies(run, model, use)


class Strained(nn.Module):
    """As MACE does: a strain that is made inside, positions that are switched on, and a dictionary with all results."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds, self.first, self.last = nn.Embedding(4, 8), nn.Linear(3, 8), nn.Linear(8, 1)
        self.register_buffer("references", torch.randn(4, 1))

    def forward(self, data: dict[str, torch.Tensor], training: bool = False) -> dict[str, Any]:
        data["positions"].requires_grad_(True)
        strain = torch.zeros(3, 3, device=data["positions"].device).requires_grad_(True)
        x = data["positions"] + data["positions"] @ (0.5 * (strain + strain.t()))
        features = torch.tanh(self.first(x)) * self.kinds(data["kinds"])
        atoms = self.last(features * features) + self.references[data["kinds"]]
        energy = torch.zeros(2, 1, device=x.device).index_add(0, data["batch"], atoms)
        ones = [torch.ones_like(energy)]
        forces, virials = torch.autograd.grad([energy], [data["positions"], strain], ones, retain_graph=training,
                                              create_graph=training, allow_unused=True)  # fmt: skip
        return {"energy": energy, "atoms": atoms, "forces": -forces, "virials": -virials, "features": features}


@program(tags="forces hooks")
def energies_with_strain(run: Run) -> None:
    model, seen = run.put(Strained()), []
    batch = torch.tensor([0, 0, 0, 1, 1]).to(run.device)
    for step in run.steps():
        data = {"positions": run.randn(5, 3), "kinds": run.randint(4, 5), "batch": batch}
        out = model(data)
        see_tensors(run, data=data, out=out)
        if step % 3 == 0:
            out["atoms"].register_hook(lambda gradient: seen.append(("atoms", float(gradient.sum()))))
            out["features"].register_hook(lambda gradient: seen.append(("features", float(gradient.sum()))))
        if step % 2:
            for key in ("energy", "atoms", "features"):
                see_errors(run, out[key].sum(), model)
            with run.expect_error("of atoms"):
                run.see(atoms=torch.autograd.grad(out["energy"].sum(), out["atoms"], retain_graph=True))
            with run.expect_error("of features"):
                run.see(features=torch.autograd.grad(out["energy"].sum(), out["features"]))
            with run.expect_error("of all"):
                (out["energy"].sum() + out["atoms"].sum() + out["features"].sum()).backward()
        see_tensors(run, data=data)
        run.see(model=model, seen=str(seen))


def two_heads(run: Run, forces: Forces) -> None:
    model, seen = run.put(Potential(forces)), []
    dynamics = Dynamics(run)
    for step in run.steps():
        found, one, other, *more = model(dynamics.x)
        dynamics.x = (dynamics.x + 0.01 * found).detach()
        results = {"one": one, "other": other, **{f"more{i}": result for i, result in enumerate(more)}}
        see_tensors(run, found=found, **results)
        for name, result in results.items():
            result.register_hook(lambda gradient, name=name: seen.append(name))
        with run.expect_error("all"):
            sum(result.sum() for result in results.values()).backward(retain_graph=step % 2 == 0)
        with run.expect_error("two"):
            (other.sum() * 2 + one.sum()).backward()
        for name, result in results.items():
            see_errors(run, result.sum(), model)
            with run.expect_error(f"between {name}"):
                run.see(between=torch.autograd.grad(result.sum(), one))
        run.see(seen=list(seen), model=model)


@program(tags="forces hooks")
def energies_of_two_heads(run: Run) -> None:
    """Which hooks are called before the error hangs on which head was computed last."""

    def forces(model: Any, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        body = model.net[0](x)
        one, other = (body * body).sum(1), (body * x.sum()).sum()
        gradient = torch.autograd.grad([one.sum(), other], x)[0]
        return -gradient, one + 1, other

    two_heads(run, forces)


@program(tags="forces hooks")
def energies_of_heads_one_after_the_other(run: Run) -> None:
    """The first head is finished before the second one begins, or both go on in turns; one of them is made of the other."""

    def forces(model: Any, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        body = model.net[0](x)
        one = (body * body).sum(1)
        other = (one * x.sum(1)).sum()
        late = (body * 2 * one.detach().sum()).sum()
        gradient = torch.autograd.grad([other, late], x)[0]
        return -gradient, one, other + 2, late.sum() * 3

    two_heads(run, forces)


@program(tags="forces")
def energies_given_to_a_module(run: Run) -> None:
    """Another region gets the energy as an argument; its own weights have gradients before the error."""
    model, head = run.put(Potential(freed)), run.put(nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)))
    dynamics = Dynamics(run)
    for step in run.steps():
        energy = dynamics.step(model)
        loss = head(energy.reshape(1, 1) if step < 9 else energy.detach().reshape(1, 1)).sum()
        with run.expect_error("loss"):
            loss.backward()
        see_tensors(run, loss=loss)
        run.see(model=model, head=head)
        head.zero_grad()


@program(tags="forces")
def energies_differentiated_by_another_thread(run: Run) -> None:
    import threading

    model = run.put(Potential(freed))

    def use(step: int, energy: torch.Tensor) -> None:
        thread = threading.Thread(target=see_errors, args=(run, energy, model))
        thread.start()
        thread.join()

    run_energies(run, model, use)


@program(tags="forces")
def energies_without_and_with_gradients(run: Run) -> None:
    """Calls under no_grad() and with gradients, of a forward that switches them on and of one that does not."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        with torch.enable_grad():
            return freed(model, x)

    def without(model: Potential, x: torch.Tensor) -> Any:
        with torch.enable_grad():
            return energy_of(model, x), x * 1

    for kind in (forces, without):
        model = run.put(Potential(kind))
        dynamics = Dynamics(run)
        for step in run.steps():
            with torch.set_grad_enabled(step % 4 == 3):
                energy = dynamics.step(model)
            see_errors(run, energy, model)
            model.zero_grad()


@program(tags="forces")
def energies_of_copied_positions(run: Run) -> None:
    """The leaf has memory of its own, as the graph has as long as the energy lives."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        return freed(model, x.clone())

    def later(model: Potential, x: torch.Tensor) -> Any:
        offset = torch.zeros_like(x).requires_grad_()
        energy = energy_of(model, x + offset)
        return energy, -torch.autograd.grad(energy, offset)[0]

    for kind in (forces, later):
        model = run.put(Potential(kind))
        run_energies(run, model, lambda _, energy, model=model: see_errors(run, energy, model))


@program(tags="forces")
def energies_relaxed_inside(run: Run) -> None:
    """Several graphs of one kind come and go in a call: nodes of one lie where nodes of another lay."""

    class Relaxed(Atoms):
        def forward(self, x: torch.Tensor, kinds: torch.Tensor, pairs: torch.Tensor) -> Any:
            for _ in range(3):
                energy, forces = super().forward(x, kinds, pairs)
                x = x + 0.01 * forces
            return energy, forces

    model = run.put(Relaxed())
    given = kinds_and_pairs(run)
    run_energies(run, model, lambda step, energy: see_errors(run, energy, model) if step % 2 else None, *given)


@program(tags="forces")
def energies_of_the_first_and_the_last(run: Run) -> None:
    """The graph of the first energy is freed, that of the last one is not."""

    def forces(model: Potential, x: torch.Tensor, free: bool) -> Any:
        energy, found = freed(model, x)
        del energy
        last, again = freed(model, x + found) if free else (energy_of(model, x + found), x * 1)
        return last, found + again

    run_in_two_ways(run, forces, lambda step: step < 14)
