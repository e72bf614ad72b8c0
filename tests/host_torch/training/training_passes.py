"""What a backward pass in a forward does besides: sums of gradients, code in Python, errors, modes, other threads."""

import contextlib
import threading
from typing import Any, Callable

import torch
from common import Run, autocast, nn, program, see_tensors
from potentials import Dynamics, Potential, detached, energy_of, move
from torch.utils.checkpoint import checkpoint


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
