"""Calls that are made again for a backward pass that was not seen, while what they worked on has changed since."""

import weakref
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch
from common import F, Run, batch, nn, program, see_step, sgd

Change = Callable[[nn.Module, torch.Tensor, torch.Tensor], Any]  # of the model, its argument, its result


class Unwritten(nn.Module):
    """A node keeps memory that no kernel writes, as attention without dropout keeps a random state; its gradient counts nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 4)
        self.register_buffer("all", torch.ones(8, dtype=torch.bool))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.one(x).tanh()
        return self.other(torch.where(self.all, h, h * torch.empty_like(h)))


class Shifted(nn.Module):
    """Its argument is kept by no node, and its result by one."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(8))
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.one(self.bias + x).tanh()).tanh()


def pass_twice(run: Run, model: nn.Module, change: Optional[Change] = None, error: str = "", amp: bool = False) -> None:
    """Each pass keeps its graph from step 13 on, and comes twice; in between, `change` from step 12 on. `amp`: under autocast."""
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        for number in range(step % 4):  # memory that comes again has other bytes in it
            torch.full((6, 8), step * 8.0 + number, device=x.device)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=amp):
            out = model(x)
        loss = F.mse_loss(out.float(), y)
        if change is not None and step >= 12:
            change(model, x, out)
        if error and step >= 12:
            with run.expect_error(error):
                loss.backward(retain_graph=step >= 13)
            optimizer.zero_grad()
            continue
        if step >= 13:
            loss.backward(retain_graph=True)
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="again")
def again_with_unwritten_memory(run: Run) -> None:
    """Nodes keep memory that nobody writes: its bytes are other ones the second time."""
    pass_twice(run, run.put(Unwritten()))


@program(tags="again")
def again_after_work_on_the_argument(run: Run) -> None:
    """The argument, which no node keeps, is worked on between call and pass."""
    pass_twice(run, run.put(Shifted()), lambda model, x, out: x.add_(1))


@program(tags="again")
def again_after_data_of_the_argument(run: Run) -> None:
    """The same behind autograd's back."""
    pass_twice(run, run.put(Shifted()), lambda model, x, out: x.data.mul_(3))


@program(tags="again")
def again_after_data_of_the_result(run: Run) -> None:
    """The result, which a node keeps, is changed behind autograd's back: the pass reads the new numbers."""
    pass_twice(run, run.put(Shifted()), lambda model, x, out: out.data.mul_(0.5))


@program(tags="again")
def again_under_autocast_with_unwritten_memory(run: Run) -> None:
    """The same while casts of weights lie elsewhere, with the same bytes."""
    pass_twice(run, run.put(Unwritten()), amp=True)


@program(tags="again")
def again_under_autocast_after_work_on_the_argument(run: Run) -> None:
    """The argument, of which nodes keep a cast, is worked on between call and pass."""
    pass_twice(run, run.put(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))), lambda model, x, out: x.mul_(2), amp=True)


@program(tags="again")
def again_after_work_on_the_result(run: Run) -> None:
    """The result is worked on, and a node keeps it: PyTorch's error."""
    pass_twice(run, run.put(Shifted()), lambda model, x, out: out.add_(1), "a kept result")


@program(tags="again")
def again_after_data_of_a_weight(run: Run) -> None:
    """A weight that nodes keep is changed behind autograd's back."""
    pass_twice(run, run.put(Shifted()), lambda model, x, out: model.other.weight.data.mul_(1.5))


@program(tags="again")
def again_after_data_of_a_bias(run: Run) -> None:
    """A weight that no node keeps is changed behind autograd's back."""
    pass_twice(run, run.put(Shifted()), lambda model, x, out: model.bias.data.add_(1))


@program(tags="again")
def again_after_work_on_a_weight(run: Run) -> None:
    """A weight that nodes keep is worked on: PyTorch's error."""

    def change(model: nn.Module, x: torch.Tensor, out: torch.Tensor) -> None:
        with torch.no_grad():
            model.other.weight.mul_(0.9)

    pass_twice(run, run.put(Shifted()), change, "a kept weight")


class Box:
    """An argument with a tensor in it."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x, self.scale = x, 0.5


@dataclass(frozen=True)
class FrozenBox:
    x: torch.Tensor
    scale: float = 0.5


class ItemBox(OrderedDict):
    """As the outputs of transformers' models: its items are attributes, too."""

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__(x=x)
        self.x, self.scale = x, 0.5


class Opening(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, box: Any) -> torch.Tensor:
        return self.other(torch.tanh(self.one(box.x) * box.scale))


def gone_argument(run: Run, box: Callable[[torch.Tensor], Any], differentiates: bool = False) -> None:
    """The argument is made for the call, and gone when a pass comes that was not seen: the second one, or one that makes a graph."""
    model = run.put(Opening())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        loss = F.mse_loss(model(box(x)), y)
        if step >= 13 and differentiates:
            gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
            loss = loss + sum(gradient.square().sum() for gradient in gradients)
        elif step >= 13:
            loss.backward(retain_graph=True)
        loss.backward()
        see_step(run, loss, model, optimizer)


@program(tags="again")
def again_after_the_argument_is_gone(run: Run) -> None:
    gone_argument(run, Box)


@program(tags="again")
def again_after_a_dataclass_is_gone(run: Run) -> None:
    gone_argument(run, FrozenBox)


@program(tags="again")
def again_after_an_ordered_dict_is_gone(run: Run) -> None:
    gone_argument(run, ItemBox)


@program(tags="again")
def again_with_a_graph_after_the_argument_is_gone(run: Run) -> None:
    gone_argument(run, Box, differentiates=True)


@program(tags="again")
def again_arguments_end_at_once(run: Run) -> None:
    """An object that was made for the call ends before the pass, and what is weakly held of it is seen to."""
    model = run.put(Opening())
    optimizer = sgd(model)
    for _ in run.steps():
        x, y = batch(run)
        box = Box(x)
        ends = weakref.ref(box)
        out = model(box)
        del box
        run.see(gone=torch.tensor(ends() is None))
        loss = F.mse_loss(out, y)
        loss.backward()
        see_step(run, loss, model, optimizer)


@program(tags="again")
def again_after_attributes_were_set(run: Run) -> None:
    """The argument has other attributes when a pass comes that was not seen."""
    model, box = run.put(Opening()), Box(torch.zeros(0))
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        box.x, box.scale = x, 0.5
        out = model(box)
        if step >= 13:
            box.x, box.scale = None, 2
        loss = F.mse_loss(out, y)
        if step >= 13:
            loss.backward(retain_graph=True)
        loss.backward()
        see_step(run, loss, model, optimizer)


class Sharing(Opening):
    """Looks whether two arguments are one."""

    def forward(self, box: Any, other: Any) -> torch.Tensor:
        out = super().forward(box)
        return out * 2 if box is other else out


class Leaving(Opening):
    """Leaves something in its argument."""

    def forward(self, box: Any) -> torch.Tensor:
        out = super().forward(box)
        box.left, box.calls = out.detach() * 2, getattr(box, "calls", 0) + 1
        return out


@program(tags="again")
def again_after_one_argument_passed_twice_is_gone(run: Run) -> None:
    model = run.put(Sharing())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        box = Box(x)
        loss = F.mse_loss(model(box, box), y)
        del box
        if step >= 13:
            loss.backward(retain_graph=True)
        loss.backward()
        see_step(run, loss, model, optimizer)


@program(tags="again")
def again_after_the_call_changed_its_argument(run: Run) -> None:
    """What the call left in its argument is there once, and stays what it was."""
    model = run.put(Leaving())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        box = Box(x)
        loss = F.mse_loss(model(box), y)
        left = box.left
        if step >= 13:
            loss.backward(retain_graph=True)
        loss.backward()
        see_step(run, loss, model, optimizer, left=box.left, calls=torch.tensor([box.calls, box.left is left]))


class Gathering(Opening):
    """Its argument is a list or a dictionary of tensors."""

    def forward(self, parts: Any) -> torch.Tensor:
        first, *others = parts.values() if isinstance(parts, dict) else parts
        return super().forward(Box(first)) + sum(other.mean() for other in others)


def changed_container(run: Run, container: Callable[..., Any], change: Callable[[Any], Any], by_name: bool = False) -> None:
    """The list or dictionary that the call got has other items when a pass comes that was not seen."""
    model = run.put(Gathering())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        parts = container(x, x * 0.5)
        out = model(parts=parts) if by_name else model(parts)
        if step >= 12:
            change(parts)
        loss = F.mse_loss(out, y)
        if step >= 13:
            loss.backward(retain_graph=True)
        loss.backward()
        see_step(run, loss, model, optimizer, parts=parts)


def pair_of(x: torch.Tensor, other: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"x": x, "other": other}


@program(tags="again")
def again_after_an_item_was_replaced(run: Run) -> None:
    changed_container(run, lambda *parts: list(parts), lambda parts: parts.__setitem__(0, parts[1] * 3))


@program(tags="again")
def again_after_a_list_was_emptied(run: Run) -> None:
    changed_container(run, lambda *parts: list(parts), lambda parts: parts.clear())


@program(tags="again")
def again_after_a_list_grew(run: Run) -> None:
    changed_container(run, lambda *parts: list(parts), lambda parts: parts.append(parts[0] * 2), by_name=True)


@program(tags="again")
def again_after_an_entry_was_taken(run: Run) -> None:
    changed_container(run, pair_of, lambda parts: parts.pop("other"))


@program(tags="again")
def again_after_an_entry_was_replaced(run: Run) -> None:
    changed_container(run, pair_of, lambda parts: parts.update(x=parts["other"]), by_name=True)


@program(tags="again")
def again_after_a_container_changed_and_came_back(run: Run) -> None:
    """The dictionary has the same items again, in another order."""
    changed_container(run, pair_of, lambda parts: parts.update(x=parts.pop("x")))
