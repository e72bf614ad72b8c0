"""Potentials that return energies which require grad beside forces. The pass inside of the call has freed their graphs."""

import weakref
from typing import Any, Callable

import torch
from common import Run, nn, program, see_step, see_tensors, traits
from potentials import Dynamics, Potential, energy_of, move

Forces = Callable[..., Any]


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

    model = run.put(Potential(forces))
    dynamics = Dynamics(run)
    for step in run.steps(24):
        energy = dynamics.step(model, step % 3 == 2)
        see_errors(run, energy, model)
        model.zero_grad()


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

    model = run.put(Potential(forces))
    dynamics = Dynamics(run)
    for step in run.steps(24):
        energy = dynamics.step(model, step < 12)
        see_errors(run, energy, model)
        model.zero_grad()


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

    model = run.put(Potential(forces))
    dynamics = Dynamics(run)
    for step in run.steps(24):
        energy = dynamics.step(model, step < 14)
        see_errors(run, energy, model)
        model.zero_grad()
