"""Modules that run a backward pass in their forward, as potentials of molecular dynamics do."""

import contextlib
import threading
from typing import Any, Callable, Optional

import torch
from common import Run, autocast, nn, program, see_step, see_tensors
from torch.utils.checkpoint import checkpoint

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


# What the pass does besides.


@program(tags="forces")
def backward_inside(run: Run) -> None:
    """The forward calls backward(): gradients of the weights add up."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        energy = energy_of(model, x)
        energy.backward()
        return energy.detach(), -x.grad

    move(run, run.put(Potential(forces)))


@program(tags="forces")
def backward_for_some_inside(run: Run) -> None:
    """backward(inputs=...) adds up the gradients of one weight."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        energy = energy_of(model, x)
        energy.backward(inputs=[model.net[0].weight])
        return energy.detach(), x * 0.5

    move(run, run.put(Potential(forces)))


class Counted(torch.autograd.Function):
    """Tells when its backward runs."""

    count: list[int] = []

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        Counted.count.append(1)
        return gradient * 2


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * ctx.saved_tensors[0] * Doubled.factor

    factor = 2.0


@program(tags="forces")
def forces_with_a_counting_function(run: Run) -> None:
    """A function in Python whose backward leaves a trace."""
    Counted.count.clear()
    move(run, run.put(Potential(detached, lambda model, x: energy_of(model, Counted.apply(x)))), count=Counted.count)


@program(tags="forces")
def forces_with_a_function(run: Run) -> None:
    """A function in Python; the number that its backward names changes in the middle."""

    def before(step: int) -> None:
        Doubled.factor = 3.0 if step >= 13 else 2.0

    move(run, run.put(Potential(detached, lambda model, x: energy_of(model, Doubled.apply(x)))), before)


class Called(torch.autograd.Function):
    """Calls a module in its backward."""

    inner: Any = None

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return Called.inner(gradient)


@program(tags="forces")
def forces_with_a_module_in_the_pass(run: Run) -> None:
    """A function in Python calls a module in its backward, which is called outside of it, too."""
    model = run.put(Potential(detached, lambda model, x: energy_of(model, Called.apply(x))))
    model.inner = Called.inner = run.put(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)))

    def before(step: int) -> None:
        with torch.no_grad():
            Called.inner(run.randn(5, 3))

    move(run, model, before)


@program(tags="forces")
def forces_with_a_backward_hook(run: Run) -> None:
    """A backward hook on a layer comes in the middle, and goes again."""
    model, seen, handles = run.put(Potential()), [], []

    def before(step: int) -> None:
        if step == 12:
            handles.append(model.net[0].register_full_backward_hook(lambda *given: seen.append(len(given))))
        if step == 15:
            handles.pop().remove()

    move(run, model, before, seen=seen)


def add_checkpointed(reentrant: bool) -> None:
    def energy(model: Potential, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda x: energy_of(model, x), x, use_reentrant=reentrant)

    @program(tags="forces", name=f"forces_checkpointed_{'reentrant' if reentrant else 'plain'}")
    def checkpointed(run: Run) -> None:
        model = run.put(Potential(detached, energy, nn.Dropout(0.3)))
        dynamics = Dynamics(run)
        for _ in run.steps():
            with run.expect_error("reentrant"):
                dynamics.step(model)
            run.see(model=model)

    checkpointed.__doc__ = f"The energy is checkpointed, use_reentrant={reentrant}; with True that is an error."


add_checkpointed(False)
add_checkpointed(True)


@program(tags="forces")
def forces_that_raise(run: Run) -> None:
    """From some step on, and for some steps, the energy does not depend on the positions."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        energy = energy_of(model, x if model.depends else torch.ones_like(x))
        (gradient,) = torch.autograd.grad(energy, x)
        return energy.detach(), -gradient

    model = run.put(Potential(forces))
    dynamics = Dynamics(run)
    for step in run.steps():
        model.depends = step not in (1, 9, 10, 11)
        with run.expect_error("unused"):
            dynamics.step(model)
        run.see(model=model)


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        if Raises.now:
            raise ValueError("in the pass")
        return gradient * 2

    now = False


@program(tags="forces")
def forces_whose_pass_raises(run: Run) -> None:
    """An error on autograd's thread, in observed calls and later."""
    model = run.put(Potential(detached, lambda model, x: energy_of(model, Raises.apply(x))))
    dynamics = Dynamics(run)
    for step in run.steps():
        Raises.now = step in (0, 1, 2, 4, 12)
        with run.expect_error("raised"):
            dynamics.step(model)
        run.see(model=model)
    Raises.now = False


# Modes.


@program(tags="forces")
def forces_looked_at_for_anomalies(run: Run) -> None:
    """Under no_grad(), with gradients inside; the mode is switched on late, and then a gradient is no number."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        with torch.enable_grad():
            return detached(model, x)

    model = run.put(Potential(forces, lambda model, x: energy_of(model, x) + (x[0, 0] * 0).sqrt()))
    dynamics = Dynamics(run)
    for step in run.steps():
        looks = torch.autograd.detect_anomaly(check_nan=True) if step in (12, 15) else contextlib.nullcontext()
        with run.expect_error("no number"), torch.no_grad(), looks:
            dynamics.step(model)
        dynamics.x = run.randn(5, 3)
        run.see(model=model)


@program(tags="forces")
def forces_with_saved_tensors_seen(run: Run) -> None:
    """From some step on, somebody sees what is saved."""
    seen: list[int] = []

    def pack(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.dim())
        return x

    def before(step: int) -> Any:
        return torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x) if step in (3, 12, 13) else None

    move(run, run.put(Potential()), before, seen=seen)


@program(tags="forces")
def forces_on_one_thread(run: Run) -> None:
    """Autograd has no threads of its own, in some steps."""
    move(run, run.put(Potential()), lambda step: torch.autograd.set_multithreading_enabled(step % 3 != 0))


@program(tags="forces")
def forces_under_autocast(run: Run) -> None:
    """Two calls in each block: the second one finds the first one's casts."""
    model = run.put(Potential())
    dynamics = Dynamics(run)
    for _ in run.steps():
        with autocast():
            dynamics.step(model)
            see_tensors(run, second=model(run.randn(5, 3)))
        run.see(model=model)


@program(tags="forces")
def forces_on_a_stream(run: Run) -> None:
    """All of it on a stream of its own."""
    stream = torch.cuda.Stream()
    move(run, run.put(Potential()), lambda step: torch.cuda.stream(stream))
    torch.cuda.synchronize()


# Threads.


class Side:
    """Another thread that works in each step while this one does, and what it saw."""

    def __init__(self, work: Callable[[int], torch.Tensor]) -> None:
        self.work, self.seen, self.step = work, [], 0
        self.begin, self.end, self.over = threading.Semaphore(0), threading.Semaphore(0), False
        self.thread = threading.Thread(target=self.loop)
        self.thread.start()

    def loop(self) -> None:
        while True:
            self.begin.acquire()
            if self.over:
                return
            self.seen = [self.work(self.step) for _ in range(4)]
            self.step += 1
            self.end.release()

    @contextlib.contextmanager
    def at_work(self) -> Any:
        self.begin.release()
        yield
        self.end.acquire()

    def stop(self) -> None:
        self.over = True
        self.begin.release()
        self.thread.join()


def add_threads(name: str, about: str, other: Callable[[Run], Callable[[int], torch.Tensor]]) -> None:
    @program(tags="forces threads", name=name)
    def threads(run: Run) -> None:
        model, side = run.put(Potential()), Side(other(run))
        dynamics = Dynamics(run)
        for step in run.steps():
            with side.at_work() if step % 3 != 2 else contextlib.nullcontext():
                for _ in range(4):
                    dynamics.step(model)
            torch.cuda.synchronize()
            see_tensors(run, others=side.seen)
            run.see(model=model)
        side.stop()

    threads.__doc__ = about


def another_potential(run: Run) -> Callable[[int], torch.Tensor]:
    model, x = run.put(Potential(detached, energy_of, nn.Tanh())), run.randn(7, 3)
    return lambda step: model(x * (1 + 0.1 * step))[1]


def another_training(run: Run) -> Callable[[int], torch.Tensor]:
    weight, x = run.randn(3, 3).requires_grad_(), run.randn(7, 3)

    def work(step: int) -> torch.Tensor:
        y = x @ weight
        for _ in range(20):
            y = (y * 1.01).tanh()
        (gradient,) = torch.autograd.grad(y.sum(), weight)
        return gradient

    return work


add_threads("two_potentials_at_once", "Each thread has a potential of its own.", another_potential)
add_threads("forces_beside_a_training", "Another thread's passes run on the same thread of autograd's.", another_training)


@program(tags="forces threads")
def forces_in_a_backward_pass(run: Run) -> None:
    """The potential is called by a hook, on autograd's own thread."""

    def forces(model: Potential, x: torch.Tensor) -> Any:
        with torch.enable_grad():
            return detached(model, x)

    model = run.put(Potential(forces))
    dynamics = Dynamics(run)
    for _ in run.steps():
        x = run.randn(5, 3).requires_grad_()
        y = (x * 2).tanh()
        y.register_hook(lambda gradient: gradient + model(dynamics.x)[1])
        y.sum().backward()
        dynamics.step(model)
        see_tensors(run, x=x)
        run.see(model=model)
