"""Faults around a backward pass after replays have begun: what it reads is changed, swapped or freed, passes that come in
other ways than before, and weights that others change."""

import contextlib
import copy
from typing import Any, Callable, Iterator

import torch
from common import F, Run, batch, fit, net, nn, program, see_step, see_tensors, squares

LATE = 8  # replays have begun
Change = Callable[[torch.Tensor], Any]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def is_late(step: int, every: int = 3) -> bool:
    return step >= LATE and step % every == 0


def tells_of_the_kernel() -> nn.Sequential:
    """Its input, its weights and its result are saved for the backward pass."""
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid())


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
        first, model = run.put(nn.Linear(8, 8)), run.put(tells_of_the_kernel())
        both = nn.ModuleList([first, model])
        optimizer = sgd(both)
        for step in run.steps():
            x, h = run.randn(6, 8), first(run.randn(6, 8)) * 1.0
            out = model(h if what == "argument" else x)
            loss = (out * run.randn(6, 8)).sum()
            if is_late(step):
                with run.expect_error("the change"):
                    CHANGES[how]({"argument": h, "input": x, "weight": model[2].weight, "result": out}[what])
            see_tensors(run, x=x, h=h, out=out)
            with run.expect_error("backward"):
                loss.backward()
            see_step(run, loss, both, optimizer, x_after=x, h_after=h)

    between.__doc__ = f"{what} of a replayed call before its backward pass: {how.replace('_', ' ')}, in late steps"


for _how in CHANGES:
    for _what in ("input", "argument", "weight", "result"):
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
    swapped(model[2].weight)


def nothing(x: torch.Tensor, model: Any, optimizer: torch.optim.Optimizer) -> None:
    pass


def add_second_pass(name: str, work: Callable[..., None], every: int) -> None:
    @program(tags="twice row33", name=f"second_pass_{name}")
    def second(run: Run) -> None:
        model = run.put(tells_of_the_kernel())
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


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.body(x).tanh()
        return self.one(h), self.other(h)


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


def add_mid(name: str, about: str, change: Callable[..., Any], make: Callable[[], tuple[nn.Module, ...]] = tuple) -> None:
    """`change(step, model, optimizer, kept)` before each step; `kept` is a copy of the first weights."""

    @program(tags="weights row35", name=name)
    def mid(run: Run) -> None:
        model = net(run, nn.Linear(8, 8), *make())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        kept = copy.deepcopy(model.state_dict())
        fit(run, model, optimizer, before=lambda step: change(step, model, optimizer, kept))

    mid.__doc__ = about


def freeze_in_turn(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    model[2].requires_grad_(not is_late(step, 2))
    model[0].bias.requires_grad_(not is_late(step, 3))


def freeze_all_but_the_last(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if step in (LATE, LATE + 4, LATE + 8):
        model[0].requires_grad_(step != LATE)
        model[2].requires_grad_(step == LATE + 8)


def load(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if is_late(step):
        model.load_state_dict(kept)


def load_by_copy(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    with torch.no_grad():
        if is_late(step):
            model[0].weight.copy_(kept["0.weight"])
            model[2].bias.data.copy_(kept["2.bias"])


def load_by_data(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if is_late(step):
        model[0].weight.data = kept["0.weight"].clone()
        model[2].weight.data = kept["2.weight"].t().contiguous().t()


def swap_two(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if is_late(step):
        one, other = model[0].weight, model[2].weight
        one.data, other.data = other.data, one.data


def load_by_assign(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if is_late(step, 4):
        model.load_state_dict({name: x.clone() for name, x in kept.items()}, assign=True)
        optimizer.param_groups[0]["params"] = list(model.parameters())
        optimizer.state.clear()


def replace_layer(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if is_late(step, 4):
        model[2] = copy.deepcopy(model[2])
        optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.02})


def tie_and_untie(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if step in (LATE, LATE + 6):
        model[2].weight = model[0].weight
    elif step in (LATE + 3, LATE + 8):
        model[2].weight = nn.Parameter(kept["2.weight"].clone())
        optimizer.add_param_group({"params": [model[2].weight]})


def tie_by_data(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if step == LATE:
        model[2].weight.data = model[0].weight.data
    elif step == LATE + 5:
        model[2].weight.data = kept["2.weight"].clone()


def change_rates(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    group = optimizer.param_groups[0]
    group["lr"], group["weight_decay"] = 0.01 * 0.9**step, 0.01 * step
    group["betas"] = (0.9 - 0.01 * step, 0.999)


def grow_groups(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if step == 0:
        optimizer.param_groups[0]["params"] = list(model[0].parameters())
    if step in (LATE, LATE + 4):
        optimizer.add_param_group({"params": model[2 if step == LATE else 3].parameters(), "lr": 0.02})


add_mid("frozen_in_turn", "Layers are frozen in every second and in every third late step", freeze_in_turn)
add_mid("frozen_to_the_last", "All but the last layer are frozen, and unfrozen one by one", freeze_all_but_the_last)
add_mid("loaded_into_weights", "load_state_dict in every third late step", load, lambda: (nn.BatchNorm1d(8),))
add_mid("loaded_by_copy", "Weights are copied into, with autograd's knowledge and without", load_by_copy)
add_mid("loaded_by_data", "Weights get new memory; one of them has other strides then", load_by_data)
add_mid("memory_of_two_swapped", "Two weights exchange their memory", swap_two)
add_mid("loaded_by_assign", "New parameters are assigned, and the optimizer gets them", load_by_assign)
add_mid("layer_replaced", "A layer is replaced by its copy, which the optimizer gets, too", replace_layer)
add_mid("tied_and_untied", "Two layers share a weight, do not, and do so again", tie_and_untie)
add_mid("tied_by_data", "Two weights share their memory for five steps", tie_by_data)
add_mid("rates_of_each_step", "Learning rate, weight decay and betas change in each step", change_rates)
add_mid("groups_that_grow", "Parameters come to the optimizer in late steps", grow_groups)


@contextlib.contextmanager
def averaged(model: nn.Module, average: dict[str, torch.Tensor], how: str) -> Iterator[None]:
    """The model has the averaged weights for a while."""
    kept = {name: p.data if how == "data" else p.detach().clone() for name, p in model.named_parameters()}
    for weights in (average, kept):
        with torch.no_grad():
            for name, p in model.named_parameters():
                if how == "data":
                    p.data = weights[name]
                else:
                    p.copy_(weights[name])
        if weights is average:
            yield


def add_average(how: str) -> None:
    @program(tags="weights row35", name=f"averaged_by_hand_{how}")
    def average(run: Run) -> None:
        model = net(run, nn.Linear(8, 8))
        weights = {name: p.detach().clone() for name, p in model.named_parameters()}

        def update(step: int) -> None:
            with torch.no_grad():
                for name, p in model.named_parameters():
                    weights[name].lerp_(p, 0.1)
            if step % 2:
                with averaged(model, weights, how), torch.no_grad():
                    see_tensors(run, evaluated=model.eval()(run.randn(6, 8)))
                model.train()

        fit(run, model, after=update)

    average.__doc__ = f"A moving average takes the weights' place for an evaluation ({how})"


add_average("copy")
add_average("data")
