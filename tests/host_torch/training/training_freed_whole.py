"""A pass that frees the whole graph of a call, and another one over it: what it adds up before PyTorch's error is there."""

from typing import Any, Callable

import torch
from common import F, Run, batch, nn, program, see_step, sgd

Of = Callable[[Any], torch.Tensor]


class Shifted(nn.Module):
    """The last node keeps nothing, and leads to a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.shift = nn.Linear(8, 4, bias=False), nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        h += self.shift
        return h


class ShiftedInside(nn.Module):
    """Nodes that keep nothing lie before the first one that does, and behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.last = (nn.Parameter(torch.full((size,), 0.1)) for size in (8, 8, 4))
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.one(x + self.first) + self.inner
        return (self.other(h.tanh()) + self.last).reshape(-1, 2, 2).transpose(1, 2)


class TwoResults(nn.Module):
    """The pass over the second result frees nothing, and never fails."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.shift, self.free = nn.Linear(8, 4), nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(x).tanh() + self.shift, x + self.free


class Fed(nn.Module):
    """The second result is made of the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.shift = nn.Linear(8, 4), nn.Parameter(torch.zeros(8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = x + self.shift
        return self.layer(features), features


class Skipping(nn.Module):
    """Gradients of an argument come behind the node that fails, and those of a leaf before it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layer(x).tanh()


def one(out: Any) -> torch.Tensor:
    return out.square().mean()


def both(out: Any) -> torch.Tensor:
    return out[0].square().mean() + out[1].square().mean()


def first_alone(out: Any) -> torch.Tensor:
    return out[0].square().mean()


def second_alone(out: Any) -> torch.Tensor:
    return (out[1] * 3).square().mean()


def add(name: str, make: Callable[[], nn.Module], first: Of, second: Of, fails: bool = True, leaf: str = "") -> None:
    """From step 10 on `second` comes behind `first`. `leaf`: the argument is one, or a tensor that was computed of one.
    Under autocast gradients get to weights by casts, which autograd's engine runs behind the call's nodes."""
    for casts in (False, True):
        add_with(f"{name}_under_autocast" if casts else name, make, first, second, fails, leaf, casts)


def add_with(name: str, make: Callable[[], nn.Module], first: Of, second: Of, fails: bool, leaf: str, casts: bool) -> None:
    @program(tags="freed", name=f"freed_whole_{name}")
    def run_program(run: Run) -> None:
        model = run.put(make())
        optimizer = sgd(model)
        for step in run.steps():
            x, y = batch(run)
            x.requires_grad_(bool(leaf))
            with torch.autocast(x.device.type, torch.bfloat16, enabled=casts):
                out = model(x + 0 if leaf == "behind" else x)
            first(out).backward()
            others = [torch.full((64 * size,), float("nan"), device=x.device) for size in range(1, 5)]
            if step >= 10 and fails:
                with run.expect_error("freed"):
                    second(out).backward()
            elif step >= 10:
                second(out).backward()
            see_step(run, F.mse_loss(y, y), model, optimizer, of_argument=x.grad, others=others)


add("with_a_shift_at_the_end", Shifted, one, one)
add("with_shifts_on_the_way", ShiftedInside, one, one)
add("then_a_result_that_keeps_nothing", TwoResults, both, second_alone, fails=False)
add("then_both_of_two_results", TwoResults, both, both)
add("then_the_first_of_two_results", TwoResults, both, first_alone)
add("but_for_a_result_that_keeps_nothing", TwoResults, first_alone, both)
add("then_features", Fed, both, second_alone, fails=False)
add("then_what_is_made_of_features", Fed, both, first_alone)
add("of_a_leaf", Skipping, one, one, leaf="itself")
add("of_a_tensor_behind_a_leaf", Skipping, one, one, leaf="behind")


def add_hooked(name: str, make: Callable[[], nn.Module], hook: Callable[[nn.Parameter, Callable[..., None]], Any]) -> None:
    """Hooks on the weights come behind the first pass, and see what the second one adds up."""

    @program(tags="freed", name=f"freed_whole_{name}")
    def run_program(run: Run) -> None:
        model = run.put(make())
        optimizer = sgd(model)
        for step in run.steps():
            x, y = batch(run)
            out = model(x)
            one(out).backward()
            seen: list[str] = []

            def note(name: str) -> Callable[..., None]:
                return lambda given: seen.append(f"{name} {float((given if given.grad is None else given.grad).sum())}")

            if step >= 10:
                handles = [hook(weight, note(name)) for name, weight in model.named_parameters()]
                with run.expect_error("freed"):
                    one(out).backward()
                for handle in handles:
                    handle.remove()
            see_step(run, F.mse_loss(y, y), model, optimizer, seen=seen)


for _name, _make in {"with_a_shift": Shifted, "with_shifts": ShiftedInside}.items():
    add_hooked(f"{_name}_then_hooks", _make, lambda weight, note: weight.register_hook(note))
    add_hooked(f"{_name}_then_hooks_behind", _make, lambda weight, note: weight.register_post_accumulate_grad_hook(note))


@program(tags="freed")
def freed_whole_beside_another_call(run: Run) -> None:
    """The pass that fails runs another call's nodes as well, with the same weights."""
    model = run.put(ShiftedInside())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        out = model(x)
        one(out).backward()
        if step >= 10:
            with run.expect_error("freed"):
                (one(out) * 2 + one(model(x * 0.5))).backward()
        see_step(run, F.mse_loss(y, y), model, optimizer)
