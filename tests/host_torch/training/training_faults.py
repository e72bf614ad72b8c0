"""Backward passes after replays have begun: what they read is changed, swapped or freed before, and passes come in other
ways than those that were observed."""

import gc
from typing import Any, Callable

import torch
from common import F, Heads, Run, batch, net, nn, program, see_step, see_tensors, squares
from common import sgd_with_momentum as sgd

LATE = 8  # replays have begun
Change = Callable[[torch.Tensor], Any]


def is_late(step: int, every: int = 3) -> bool:
    return step >= LATE and step % every == 0


class Scale(nn.Module):
    """Its weight itself is saved, where a linear layer saves a view."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 2.0, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def saving() -> nn.Sequential:
    """Its input, its weights and its result are saved for the backward pass."""
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), Scale(), nn.Linear(8, 8), nn.Sigmoid())


def swapped(t: torch.Tensor) -> None:
    t.data = t.data * 0.5


def set_to_other(t: torch.Tensor) -> None:
    with torch.no_grad():
        t.set_(t.detach() * 0.5)


def freed(t: torch.Tensor) -> None:
    """As FSDP does between the passes: the storage is emptied, and gets other memory."""
    values, storage = t.detach().clone(), t.untyped_storage()
    size = storage.nbytes()
    with torch.autograd._unsafe_preserve_version_counter(t):
        storage.resize_(0)
        held = torch.full_like(values, 7.0)
        storage.resize_(size)
        t.detach().copy_(values * 0.5)
    del held


CHANGES: dict[str, Change] = {
    "in_place": lambda t: t.detach().mul_(0.5),
    "by_data": lambda t: t.data.mul_(0.5),
    "unseen": lambda t: unseen(t),
    "swapped": swapped,
    "set": set_to_other,
    "freed": freed,
}


def unseen(t: torch.Tensor) -> None:
    with torch.autograd._unsafe_preserve_version_counter(t):
        t.detach().mul_(0.5)


def add_between(how: str, what: str) -> None:
    @program(tags="between row33", name=f"{what}_{how}_between")
    def between(run: Run) -> None:
        first, model = run.put(nn.Linear(8, 8)), run.put(saving())
        both = nn.ModuleList([first, model])
        optimizer = sgd(both)
        for step in run.steps():
            x, h = run.randn(6, 8), first(run.randn(6, 8)) * 1.0
            out = model(h if what == "argument" else x)
            named = {"argument": h, "input": x, "weight": model[3].weight, "scale": model[2].weight, "result": out}
            loss = (out * run.randn(6, 8)).sum()
            if is_late(step):
                with run.expect_error("the change"):
                    CHANGES[how](named[what])
            see_tensors(run, x=x, h=h, out=out)
            with run.expect_error("backward"):
                loss.backward()
            see_step(run, loss, both, optimizer, x_after=x, h_after=h)

    between.__doc__ = f"{what} of a replayed call before its backward pass: {how.replace('_', ' ')}, in late steps"


# Where plain works or fails later, and Grape says that it cannot go on: ../replaced_memory_test.py.
ERRORS = {("swapped", "scale"), ("set", "scale"), ("freed", "scale"), ("freed", "weight")}

for _how in CHANGES:
    for _what in ("input", "argument", "weight", "scale", "result"):
        if (_how, _what) not in ERRORS:
            add_between(_how, _what)


def add_flag_between(value: bool) -> None:
    @program(tags="between row33", name=f"{'unfrozen' if value else 'frozen'}_between")
    def flag(run: Run) -> None:
        model = net(run, nn.Linear(8, 8))
        optimizer = sgd(model)
        for step in run.steps():
            model[2].weight.requires_grad_(not value)
            loss, out = squares(model, *batch(run))
            if is_late(step):
                model[2].weight.requires_grad_(value)
                model[0].bias.requires_grad_(False)
            loss.backward()
            model[0].bias.requires_grad_(True)
            see_step(run, loss, model, optimizer, out=out)

    flag.__doc__ = f"A weight's flag becomes {value} between the passes, in late steps"


add_flag_between(False)
add_flag_between(True)


def change_input(x: torch.Tensor, model: Any, optimizer: torch.optim.Optimizer) -> None:
    with torch.no_grad():
        x.mul_(0.5)


def step_once(x: torch.Tensor, model: Any, optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()


def swap_weight(x: torch.Tensor, model: Any, optimizer: torch.optim.Optimizer) -> None:
    swapped(model[3].weight)


def nothing(x: torch.Tensor, model: Any, optimizer: torch.optim.Optimizer) -> None:
    pass


def add_second_pass(name: str, work: Callable[..., None], every: int) -> None:
    @program(tags="twice row33", name=f"second_pass_{name}")
    def second(run: Run) -> None:
        model = run.put(saving())
        optimizer = sgd(model)
        for step in run.steps():
            x, y = run.randn(6, 8), run.randn(6, 8)
            loss, out = squares(model, x, y)
            again = is_late(step) if every else True
            loss.backward(retain_graph=again)
            see_tensors(run, once=model)
            if again:
                work(x, model, optimizer)
                with run.expect_error("second pass"):
                    loss.backward(retain_graph=step % 2 == 0)
                with run.expect_error("third pass"):
                    loss.backward()
            see_step(run, loss, model, optimizer, out=out, x=x)

    when = "in late steps" if every else "in each step"
    second.__doc__ = f"A second and a third backward pass {when}; before the second one: {name.replace('_', ' ')}"


for _every in (0, 3):
    _suffix = "_late" if _every else ""
    add_second_pass(f"at_once{_suffix}", nothing, _every)
    if _every:  # in each step: see ERRORS
        add_second_pass(f"after_a_changed_input{_suffix}", change_input, _every)
    add_second_pass(f"after_a_step{_suffix}", step_once, _every)
    add_second_pass(f"after_a_swapped_weight{_suffix}", swap_weight, _every)


def add_two_forwards(first: int, work: Callable[..., None], name: str) -> None:
    @program(tags="order row33", name=f"two_forwards_{name}_{'same' if first == 0 else 'other'}_order")
    def two(run: Run) -> None:
        model = net(run, nn.Dropout(0.2))
        optimizer = sgd(model)
        for step in run.steps():
            (x, y), other = batch(run), batch(run)
            losses = [squares(model, x, y)[0], squares(model, *(other if step % 2 else (x, y)))[0]]
            losses[first].backward()
            see_tensors(run, once=model)
            if is_late(step):
                work(x, model, optimizer)
            with run.expect_error("other"):
                losses[1 - first].backward()
            see_step(run, losses[0], model, optimizer, second=losses[1])

    two.__doc__ = f"Two forwards, then both passes, that of forward {first} first; in between: {name.replace('_', ' ')}"


for _first in (0, 1):
    add_two_forwards(_first, step_once, "and_a_step")
    add_two_forwards(_first, change_input, "and_a_changed_input")
    add_two_forwards(_first, lambda x, model, optimizer: swapped(model[0].weight), "and_a_swapped_weight")


@program(tags="partial row33")
def some_gradients_late(run: Run) -> None:
    """Plain passes until replays have begun, then gradients of some tensors only."""
    first, second = net(run, out=8), net(run)
    both = nn.ModuleList([first, second])
    optimizer = torch.optim.Adam(both.parameters(), lr=0.01)
    for step in run.steps():
        x, y = batch(run)
        x.requires_grad_()
        h = first(x)
        loss = F.mse_loss(second(h), y)
        if is_late(step):
            wanted = [[x], [h, second[0].bias], [first[2].weight], [second[2].bias, x]][step // 3 % 4]
            run.see(grads=list(torch.autograd.grad(loss, wanted, retain_graph=True)))
            loss.backward(inputs=[first[0].bias, second[2].weight])
        else:
            loss.backward()
        see_step(run, loss, both, optimizer, x=x, h=h)


@program(tags="partial row33")
def results_unused_late(run: Run) -> None:
    """Both results are used until replays have begun, then one of them, then none, then both."""
    model = run.put(Heads())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in run.steps():
        x, y = batch(run)
        results = model(x)
        used = list(results) if not is_late(step, 2) else [[results[0]], [results[1]], []][step // 2 % 3]
        if used:
            loss = torch.stack([F.mse_loss(out, y) for out in used]).sum()
            loss.backward()
        see_step(run, loss.detach(), model, optimizer, results=results)


@program(tags="second row33")
def products_with_the_hessian(run: Run) -> None:
    """A product of a vector with the Hessian of the weights, in late steps."""
    model = net(run, nn.Linear(8, 8), nn.Sigmoid())
    optimizer, weights = sgd(model), list(model.parameters())
    for step in run.steps():
        loss, out = squares(model, *batch(run))
        if is_late(step, 4):
            grads = torch.autograd.grad(loss, weights, create_graph=True)
            along = sum((grad * torch.ones_like(grad)).sum() for grad in grads)
            run.see(products=list(torch.autograd.grad(along, weights, retain_graph=True)))
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="second row33")
def second_derivative_of_a_result(run: Run) -> None:
    """Derivatives of a derivative with respect to a call's argument, its weights and its result, which has a hook."""
    first, model, last = run.put(nn.Linear(8, 8)), run.put(saving()), run.put(nn.Linear(8, 4))
    every = nn.ModuleList([first, model, last])
    optimizer, order = sgd(every), []
    for step in run.steps():
        x, y = batch(run)
        h = first(x)
        out = model(h)
        loss = F.mse_loss(last(out), y)
        if is_late(step, 4):
            out.retain_grad()
            out.register_hook(lambda grad: order.append(grad.sum().item()))
            (grad,) = torch.autograd.grad(loss, h, create_graph=True)
            wanted = [h, out, model[0].weight, model[3].bias]
            run.see(of=list(torch.autograd.grad(grad.square().sum(), wanted, retain_graph=True)))
            loss = loss + grad.square().sum()
        loss.backward()
        run.see(order=list(order))
        see_step(run, loss, every, optimizer, out=out)


def add_one_of_two(first: bool) -> None:
    @program(tags="order row33", name=f"{'first' if first else 'second'}_of_two_forwards")
    def one(run: Run) -> None:
        model = net(run, nn.Dropout(0.2))
        optimizer = sgd(model)
        for step in run.steps():
            losses = [squares(model, *batch(run))[0] for _ in range(2)]
            loss = losses[0 if first else 1] if step % 4 else losses[1 if first else 0] + losses[0 if first else 1] * 0.5
            if step % 2:
                losses.clear()
            loss.backward()
            see_step(run, loss, model, optimizer)

    one.__doc__ = f"Two forwards; the {'first' if first else 'second'} one is differentiated, in each fourth step both at once"


add_one_of_two(True)
add_one_of_two(False)


@program(tags="between row33")
def module_dies_between(run: Run) -> None:
    """The module is gone when the backward pass of its last call comes, and so are its weights' names."""
    for round_ in range(3):
        first, model = run.put(nn.Linear(8, 8)), run.put(saving())
        optimizer = sgd(first)
        for step in run.steps(run.count // 3):
            out = model(first(run.randn(6, 8)))
            loss = F.mse_loss(out, run.randn(6, 8))
            if step == run.count // 3 - 1:
                del model
                gc.collect()
                run.see(others=[torch.full((8, 8), 7.0, device=run.device) for _ in range(8)])
            loss.backward()
            see_step(run, loss, first, optimizer, out=out)


@program(tags="between row33")
def weights_replaced_between(run: Run) -> None:
    """New parameters take the places of the old ones, which the backward pass still reads and gives gradients to."""
    model = run.put(saving())
    for step in run.steps():
        x, y = run.randn(6, 8), run.randn(6, 8)
        loss, out = squares(model, x.requires_grad_(), y)
        olds = [model[2].weight, model[3].weight] if is_late(step) else []
        if olds:
            model[2].weight, model[3].weight = (nn.Parameter(old.detach() * 0.5) for old in olds)
            if step % 2:
                olds.clear()
        loss.backward()
        see_tensors(run, loss=loss, out=out, x=x, model=model, olds=olds)
        model.zero_grad()


def add_hooked_node(late: bool, doubles: bool) -> None:
    @program(tags="hooks row32", name=f"node_hook_{'doubles' if doubles else 'looks'}{'_late' if late else ''}")
    def hooked_node(run: Run) -> None:
        first, model = run.put(nn.Linear(8, 8)), run.put(saving())
        both, seen = nn.ModuleList([first, model]), []
        optimizer = sgd(both)

        def hook(into: Any, of: Any) -> Any:
            seen.extend([*into, *of])  # it has no work of its own on the device
            return tuple(part if part is None else part * 2.0 for part in into) if doubles else None

        for step in run.steps():
            out = model(first(run.randn(6, 8)))
            if not late or is_late(step):
                out.grad_fn.register_hook(hook)
            loss = F.mse_loss(out, run.randn(6, 8))
            loss.backward()
            run.see(seen=list(seen))
            seen.clear()
            see_step(run, loss, both, optimizer, out=out)

    hooked_node.__doc__ = f"A hook behind a result's node {'doubles' if doubles else 'keeps'} what leaves it" + (
        ", in late steps" if late else "")


for _late in (False, True):
    add_hooked_node(_late, False)
    add_hooked_node(_late, True)


@program(tags="hooks row32")
def backward_hook_of_the_caller(run: Run) -> None:
    """A module with an old-style backward hook returns what a part of it returned."""

    class Caller(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = saving()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.part(x)

    model, seen = run.put(Caller()), []
    optimizer = sgd(model)
    model.register_backward_hook(lambda module, into, of: seen.extend([*into, *of]))
    for _ in run.steps():
        out = model(run.randn(6, 8))
        loss = F.mse_loss(out, run.randn(6, 8))
        loss.backward()
        run.see(seen=list(seen))
        seen.clear()
        see_step(run, loss, model, optimizer, out=out)
