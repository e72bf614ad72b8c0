"""Passes over a part of a call's graph that do not keep it: the nodes that have run are freed, the others are not."""

import contextlib
from typing import Any, Callable

import torch
from common import F, Heads, Run, autocast, batch, net, nn, program, see_step, sgd
from torch.utils.checkpoint import checkpoint
from training_errors import Stop

Loss = Callable[[], torch.Tensor]  # computed again each time: its own nodes are not freed
Pass = Callable[[Loss, nn.Module], None]


class Shifts(nn.Module):
    """Its nodes keep what nobody else has: their own results."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Parameter(torch.zeros(8)), nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.first).tanh().sigmoid()[:, :4] + self.last


def run_part_first(run: Run, model: nn.Module, part: Pass, second: Pass, whole_between: bool = False) -> None:
    """From step 12 on `second` comes behind `part`. `whole_between`: whole passes come before that, too, in every second step."""
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        out = model(x)

        def loss(out: Any = out, y: torch.Tensor = y) -> torch.Tensor:
            return F.mse_loss(out, y) if isinstance(out, torch.Tensor) else F.mse_loss(out[0], y) + out[1].square().mean()

        if whole_between and step < 12 and step % 2:
            whole(loss, model)
        else:
            part(loss, model)
        if step >= 12:
            with run.expect_error("freed"):
                second(loss, model)
        see_step(run, loss().detach(), model, optimizer)


def over(*names: str, keeps: bool = False) -> Pass:
    """A pass to some of the weights."""

    def run_pass(loss: Loss, model: nn.Module) -> None:
        loss().backward(inputs=[model.get_parameter(name) for name in names], retain_graph=keeps)

    return run_pass


def whole(loss: Loss, model: nn.Module) -> None:
    loss().backward()


def to_a_clone(loss: Loss, model: nn.Module) -> None:
    """As `whole`; the weights' gradients are given back, not added up."""
    gradients = torch.autograd.grad(loss(), list(model.parameters()))
    for weight, gradient in zip(model.parameters(), gradients):
        weight.grad = gradient * 2


@program(tags="freed")
def freed_before_the_whole(run: Run) -> None:
    """A pass to the first weight, then one to all: the later layer's gradients come, then PyTorch's error."""
    run_part_first(run, net(run), over("0.weight"), whole)


@program(tags="freed")
def freed_before_the_whole_that_is_known(run: Run) -> None:
    """The same, where whole passes are replayed, too."""
    run_part_first(run, net(run), over("0.weight"), whole, whole_between=True)


@program(tags="freed")
def freed_before_gradients_are_asked_for(run: Run) -> None:
    run_part_first(run, net(run), over("0.weight"), to_a_clone)


@program(tags="freed")
def freed_with_a_later_weight(run: Run) -> None:
    """A pass to the first weight frees the node of the last one."""
    run_part_first(run, net(run), over("0.weight"), over("2.bias"))


@program(tags="freed")
def freed_behind_what_runs(run: Run) -> None:
    """A pass to the last weight frees its own node; what lies behind that is not freed, but nobody gets there."""
    run_part_first(run, net(run), over("2.weight"), whole)


@program(tags="freed")
def freed_own_results(run: Run) -> None:
    """The freed nodes keep nothing but their own results."""
    run_part_first(run, run.put(Shifts()), over("first"), whole)


@program(tags="freed")
def freed_own_results_in_a_known_pass(run: Run) -> None:
    run_part_first(run, run.put(Shifts()), over("first"), whole, whole_between=True)


@program(tags="freed")
def freed_is_another_branch(run: Run) -> None:
    """A pass to one head's weight frees nothing of the other head."""
    run_part_first(run, run.put(Heads()), over("one.weight"), over("other.weight", "other.bias"))


@program(tags="freed")
def freed_is_a_branch_of_the_whole(run: Run) -> None:
    """A pass to one head's weight, then one to all: the other head's gradients come."""
    run_part_first(run, run.put(Heads()), over("one.weight"), whole)


@program(tags="freed")
def freed_by_two_parts(run: Run) -> None:
    """Two passes to the heads free both of them; the body is left."""

    def both(loss: Loss, model: nn.Module) -> None:
        over("one.bias")(loss, model)
        over("other.bias")(loss, model)

    run_part_first(run, run.put(Heads()), both, whole)


@program(tags="freed")
def freed_by_no_part_that_keeps(run: Run) -> None:
    """The part keeps the graph, then it is not freed."""
    run_part_first(run, net(run), over("0.weight", keeps=True), whole)


@program(tags="freed")
def freed_after_a_kept_part_and_another(run: Run) -> None:
    """A pass that keeps the graph, one that does not, and a third one."""

    def parts(loss: Loss, model: nn.Module) -> None:
        over("0.bias", keeps=True)(loss, model)
        over("0.weight")(loss, model)

    run_part_first(run, net(run), parts, whole)


@program(tags="freed")
def freed_after_a_failed_pass(run: Run) -> None:
    """The whole pass fails half way; what it ran before that is freed, too, what it did not run is not."""

    def twice(loss: Loss, model: nn.Module) -> None:
        with run.expect_error("the first"):
            whole(loss, model)
        over("other.weight")(loss, model)

    run_part_first(run, run.put(Heads()), over("one.weight"), twice)


@program(tags="freed")
def freed_under_anomaly_detection(run: Run) -> None:
    """The second pass looks at each node."""

    def detecting(loss: Loss, model: nn.Module) -> None:
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            whole(loss, model)

    run_part_first(run, net(run), over("0.weight"), detecting)


@program(tags="freed")
def freed_before_a_second_derivative(run: Run) -> None:
    def differentiated(loss: Loss, model: nn.Module) -> None:
        torch.autograd.grad(loss(), list(model.parameters()), create_graph=True)

    run_part_first(run, net(run), over("0.weight"), differentiated)


@program(tags="freed")
def freed_under_autocast(run: Run) -> None:
    """Casts of weights are outside of the call, and freed by the pass, too."""

    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with autocast():
                return self.net(x).float()

    run_part_first(run, run.put(Cast()), over("net.0.weight"), whole)


@program(tags="freed")
def freed_in_one_of_several_calls(run: Run) -> None:
    """Two calls in one graph; a pass over the first one frees nothing of the second, and the whole fails in the first."""
    model = net(run)
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        first, second = model(x), model(x * 0.5)
        F.mse_loss(first, y).backward()
        if step >= 12:
            with run.expect_error("freed"):
                F.mse_loss(first + second, y).backward()
            with run.expect_error("second"):
                F.mse_loss(second, y).backward()
        else:
            F.mse_loss(second, y).backward()
        see_step(run, first.sum().detach(), model, optimizer)


@program(tags="freed")
def freed_while_features_are_seen(run: Run) -> None:
    """Features are a result, too, and somebody looks at their gradient in the second pass."""
    model = run.put(Featured())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        features, out = model(x)
        if step >= 12:
            features.retain_grad()
        over("first.weight" if step % 2 else "last.weight")(lambda: F.mse_loss(out, y) + features.sum(), model)
        if step >= 12:
            with run.expect_error("freed"):
                F.mse_loss(out, y).backward()
            run.see(features=features.grad)
        see_step(run, out.sum().detach(), model, optimizer)


class Featured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.first(x).tanh()
        return features, self.last(features.sigmoid())


@program(tags="freed")
def freed_by_a_gradient_of_the_argument(run: Run) -> None:
    """`autograd.grad` with respect to the argument, then a pass to all weights."""
    model = net(run)
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        x.requires_grad_()
        out = model(x)
        (gradient,) = torch.autograd.grad(out.square().sum(), x)
        if step >= 12:
            with run.expect_error("freed"):
                F.mse_loss(out, y).backward()
        see_step(run, out.sum().detach(), model, optimizer, gradient=gradient)


@program(tags="freed")
def freed_in_a_checkpoint(run: Run) -> None:
    """A block that is computed again in each pass."""

    class Checked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.block, self.last = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> Any:
            return self.last(checkpoint(self.block, self.first(x).tanh(), use_reentrant=False))

    run_part_first(run, run.put(Checked()), over("block.0.weight"), whole)


class RaisingHook:
    raises = False

    def __call__(self, gradient: torch.Tensor) -> None:
        if self.raises:
            raise Stop("enough")


def add_stopped(name: str, make: Callable[[], nn.Module], where: str, second: Pass) -> None:
    """A hook of a weight, of the argument or of the result raises in a whole pass, from step 12 on; then comes `second`."""

    @program(tags="freed", name=f"freed_until_{name}")
    def stopped(run: Run) -> None:
        model, hook = run.put(make()), RaisingHook()
        optimizer = sgd(model)
        if where not in ("argument", "result"):
            model.get_parameter(where).register_hook(hook)
        for step in run.steps():
            x, y = batch(run)
            x.requires_grad_()
            out = model(x)
            if where in ("argument", "result"):
                (x if where == "argument" else out).register_hook(hook)
            others = [torch.full((64 * size,), float("nan"), device=x.device) for size in range(1, 5)]
            if step >= 12:
                hook.raises = True
                with run.expect_error("stop"):
                    F.mse_loss(out, y).backward()
                hook.raises = False
                others += [torch.full((64 * size,), float("nan"), device=x.device) for size in range(1, 5)]
                run.see(then=model, x=x.grad)
                with run.expect_error("second"):
                    second(lambda: F.mse_loss(out, y), model)
            else:
                F.mse_loss(out, y).backward()
            see_step(run, out.sum().detach(), model, optimizer, x=x.grad, others=others)


def plain_net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))


for _where in ("0.weight", "0.bias", "2.weight", "2.bias", "argument", "result"):
    add_stopped(f"{_where.replace('.', '_')}_then_whole", plain_net, _where, whole)
    add_stopped(f"{_where.replace('.', '_')}_then_last", plain_net, _where, over("2.bias"))
add_stopped("own_argument_then_whole", Shifts, "argument", whole)
add_stopped("own_result_then_whole", Shifts, "result", whole)
add_stopped("own_result_then_last", Shifts, "result", over("last"))


def add_stopped_loudly(where: str, then: str, second: Pass) -> None:
    """Nodes that keep nothing run in the second pass, or nodes that the error kept from running. Plain PyTorch runs them; under
    Grape there may be an error, but no wrong gradient."""

    @program(tags="freed", name=f"freed_loudly_{where}_{then}")
    def stopped(run: Run) -> None:
        model, hook = run.put(Shifts()), RaisingHook()
        model.get_parameter(where).register_hook(hook)
        for step in run.steps():
            x, y = batch(run)
            x.requires_grad_()
            out = model(x)
            hook.raises = step >= 12
            with run.expect_error("stop"):
                F.mse_loss(out, y).backward()
            hook.raises = False
            if step >= 12:
                before = [None if tensor.grad is None else tensor.grad.clone() for tensor in (x, *model.parameters())]
                others = [torch.full((64 * size,), float("nan"), device=x.device) for size in range(1, 5)]
                with contextlib.suppress(RuntimeError):
                    second(lambda: F.mse_loss(out, y), model)
                run.see(others=others, wrong=gradients_are_wrong(model, x, y, before))
            model.zero_grad()


def gradients_are_wrong(model: nn.Module, x: torch.Tensor, y: torch.Tensor, before: list[Any]) -> bool:
    """Has a gradient grown by something that is not the gradient?"""
    copies = [tensor.detach().clone().requires_grad_() for tensor in (x, *model.parameters())]
    h = (copies[0] + copies[1]).tanh().sigmoid()[:, :4] + copies[2]
    right = torch.autograd.grad(F.mse_loss(h, y), copies)
    for tensor, then, wanted in zip((x, *model.parameters()), before, right):
        now = torch.zeros_like(wanted) if tensor.grad is None else tensor.grad
        grown = now - (0 if then is None else then)
        if not (torch.allclose(grown, torch.zeros_like(wanted)) or torch.allclose(grown, wanted, atol=1e-6)):
            return True
    return False


for _where in ("first", "last"):
    add_stopped_loudly(_where, "whole", whole)
    add_stopped_loudly(_where, "last", over("last"))


class Shifted(nn.Module):
    """Two results behind a node that keeps nothing: each may have a pass of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x + self.shift
        return h.sigmoid(), h.tanh()


def add_heads(name: str, first: Any, second: Any, from_step: int) -> None:
    @program(tags="freed", name=f"freed_heads_{name}")
    def heads(run: Run) -> None:
        """Each result has its pass; none keeps the graph."""
        model = run.put(Shifted())
        optimizer = sgd(model)
        for step in run.steps():
            x, _ = batch(run)
            x.requires_grad_()
            out = model(x)
            first(out).backward()
            others = [torch.full((64 * size,), float("nan"), device=x.device) for size in range(1, 5)]
            if step >= from_step:
                with run.expect_error("second"):
                    second(out).backward()
            see_step(run, out[0].sum().detach(), model, optimizer, x=x.grad, others=others)


for _step in (0, 12):
    add_heads(f"one_by_one_from_{_step}", lambda out: out[0].square().sum(), lambda out: out[1].square().sum(), _step)
    add_heads(f"backwards_from_{_step}", lambda out: out[1].square().sum(), lambda out: out[0].square().sum(), _step)
    add_heads(f"twice_from_{_step}", lambda out: out[0].square().sum(), lambda out: (out[0] + out[1]).square().sum(), _step)
    add_heads(f"together_from_{_step}", lambda out: (out[0] + out[1]).square().sum(), lambda out: out[1].square().sum(), _step)


class Written(nn.Module):
    """In-place work on a view: its node gives up the function that it works with, and keeps no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x + 1
        h[:, :4].add_(self.shift)
        return h[:, 2:6] + self.shift


@program(tags="freed")
def freed_work_on_a_view(run: Run) -> None:
    model = run.put(Written())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        out = model(x)
        F.mse_loss(out, y).backward()
        if step >= 12:
            with run.expect_error("freed"):
                F.mse_loss(out, y).backward()
        see_step(run, out.sum().detach(), model, optimizer)


class Spoken(nn.Module):
    """Scores, and their probabilities, which keep what they are."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.net(x)
        return scores, scores.softmax(1)


@program(tags="freed")
def freed_but_for_a_result(run: Run) -> None:
    """A result that is in no loss is kept in some steps, and dropped in the others; where it is kept, its pass fails later."""
    model = run.put(Spoken())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        scores, probabilities = model(x)
        if step % 3 == 0:
            del probabilities
        F.mse_loss(scores, y).backward()
        others = [torch.full((64 * size,), float("nan"), device=x.device) for size in range(1, 5)]
        if step % 3 == 2:
            with run.expect_error("freed"):
                probabilities.square().sum().backward()
        see_step(run, scores.sum().detach(), model, optimizer, others=others)
