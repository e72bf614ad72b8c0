"""Gradients of weights: in which order they come, who sees that, and what is there after an error."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Optional

import torch
from common import F, Heads, Run, autocast, batch, nn, program, see_step, sgd


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)
        self.three, self.shift = nn.Linear(8, 4, bias=False), nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.two(self.one(x).tanh()).relu()
        return self.three(self.norm(h)) + self.shift


class Tied(Deep):
    """A weight that is used twice, and two weights with the same gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Parameter(torch.randn(8) * 0.1), nn.Parameter(torch.randn(8) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.linear(self.one(x).tanh(), self.one.weight) + (self.left + self.right)
        return self.three(self.norm(self.two(h)).relu()) + self.shift


class Notes:
    """What hooks of weights see as they run."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = dict(model.named_parameters())
        self.lines: list[str] = []

    def note(self, label: str) -> None:
        there = [name for name, weight in self.weights.items() if weight.grad is not None]
        self.lines.append(f"{label} after {' '.join(there)}")

    def hook(self, label: str, scale: Optional[float] = None) -> Callable[..., Any]:
        def seen(*gradients: Any) -> Any:
            self.note(label)
            return gradients[0] * scale if scale is not None else None

        return seen

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


Around = Callable[[int, nn.Module, torch.Tensor, torch.Tensor, Notes], Optional[list[Any]]]


def add_leaves(name: str, around: Around, make: Callable[[], nn.Module] = Deep, casts: bool = False, odd: int = 1,
               before: Optional[Callable[[nn.Module, Notes], None]] = None) -> None:  # fmt: skip
    """`around(step, model, x, loss, notes)` runs the pass itself, and returns nothing, or returns handles of hooks."""

    @program(tags="leaves", name=f"leaves_{name}" + ("_autocast" if casts else ""))
    def leaves(run: Run) -> None:
        model = run.put(make())
        optimizer, notes = sgd(model), Notes(model)
        if before is not None:
            before(model, notes)
        for step in run.steps():
            x, y = batch(run)
            x.requires_grad_()
            with autocast() if casts else contextlib.nullcontext():
                out = model(x)
                loss = F.mse_loss(out, y)
            handles: Optional[list[Any]] = []
            try:
                if step % odd == odd - 1:
                    handles = around(step, model, x, loss, notes)
                if handles is not None:
                    loss.backward()
            except RuntimeError as error:
                run.see(error=error)
            for handle in handles or ():
                handle.remove()
            run.see(notes=notes.take(), of_input=x.grad)
            see_step(run, loss, model, optimizer, out=out)


def late_hooks(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> Any:
    return [weight.register_hook(notes.hook(name, 2.0)) for name, weight in list(model.named_parameters())[::2]]


def late_post_hooks(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> Any:
    return [weight.register_post_accumulate_grad_hook(notes.hook(name)) for name, weight in model.named_parameters()]


def late_node_hooks(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> Any:
    nodes = [(name, weight.view_as(weight).grad_fn.next_functions[0][0]) for name, weight in model.named_parameters()]
    return [node.register_hook(notes.hook(name)) for name, node in nodes]


def late_hook_that_fails(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> Any:
    def fail(gradient: torch.Tensor) -> None:
        raise RuntimeError("not this one")

    return [list(model.parameters())[2].register_hook(fail)]


def hook_on_input(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> Any:
    return [x.register_hook(notes.hook("input"))]


def weight_changed(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    with torch.no_grad():
        model.two.weight.mul_(1.0)
    loss.backward()


def weight_changed_for_some(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    with torch.no_grad():
        model.two.weight.mul_(1.0)
    loss.backward(inputs=[model.three.weight, model.one.weight, model.shift])


def twice(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    loss.backward()
    loss.backward()


def kept(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    loss.backward(retain_graph=True)
    loss.backward()


def some_first(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    found = torch.autograd.grad(loss, [model.two.weight, model.shift], retain_graph=True)
    notes.lines += [str(float(gradient.sum())) for gradient in found]
    loss.backward(inputs=[model.one.bias, model.norm.weight], retain_graph=True)
    notes.note("some")
    loss.backward()


def frozen_later(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    model.two.weight.requires_grad_(False)
    loss.backward()
    model.two.weight.requires_grad_(True)


def gradients_there(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    model.one.weight.grad = torch.zeros_like(model.one.weight).t().contiguous().t()
    model.two.weight.grad = torch.ones_like(model.two.weight)
    before = model.two.weight.grad
    loss.backward()
    notes.lines += [f"the same {model.two.weight.grad is before}", str(model.one.weight.grad.stride())]


def shared_outside(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    (loss + 0.01 * model.one.weight.square().sum() + model.shift.sin().sum()).backward()


def shared_with_hooks(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    handles = late_hooks(step, model, x, loss, notes)
    shared_outside(step, model, x, loss, notes)
    for handle in handles:
        handle.remove()


def under_profiler(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    with torch.autograd.profiler.profile() as profile:
        loss.backward()
    count = sum(event.count for event in profile.key_averages() if event.key == "torch::autograd::AccumulateGrad")
    notes.lines.append(f"{count} gradients")


def with_anomalies(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        loss.backward()


def second_derivatives(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    loss.backward(create_graph=True)
    sum(weight.grad.square().sum() for weight in model.parameters()).backward()


def shared_memory(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    owners: dict[int, list[str]] = {}
    for name, gradient in gradients.items():
        owners.setdefault(gradient.untyped_storage().data_ptr(), []).append(name)
        notes.lines.append(f"{name} version {gradient._version} {gradient.is_contiguous()}")
    notes.lines += sorted(" ".join(names) for names in owners.values())


def in_one_thread(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    with torch.autograd.set_multithreading_enabled(False):
        loss.backward()


def on_another_stream(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> None:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        loss.backward()
    torch.cuda.current_stream().wait_stream(stream)


def late_hook_of_several(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> Any:
    weights = list(model.parameters())[1:4]
    return [torch.autograd.graph.register_multi_grad_hook(weights, lambda gradients: notes.note("several"))]


def hooks_of_reducer(model: nn.Module, notes: Notes) -> None:
    """As DistributedDataParallel has them."""
    notes.nodes = []
    for name, weight in model.named_parameters():
        node = weight.expand_as(weight).grad_fn.next_functions[0][0]
        node.register_hook(notes.hook(name))
        notes.nodes.append(node)


def node_of_another_stream(model: nn.Module, notes: Notes) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        notes.nodes = [weight.expand_as(weight).grad_fn.next_functions[0][0] for weight in list(model.parameters())[::2]]


def nothing(step: int, model: nn.Module, x: torch.Tensor, loss: torch.Tensor, notes: Notes) -> Any:
    return []


KINDS: dict[str, Around] = {
    "late_hooks": late_hooks, "late_post_hooks": late_post_hooks, "late_node_hooks": late_node_hooks,
    "late_hook_fails": late_hook_that_fails, "hook_on_input": hook_on_input, "weight_changed": weight_changed,
    "weight_changed_for_some": weight_changed_for_some, "twice": twice, "kept": kept, "some_first": some_first,
    "frozen_later": frozen_later, "gradients_there": gradients_there, "shared_outside": shared_outside,
    "shared_with_hooks": shared_with_hooks, "profiler": under_profiler, "anomalies": with_anomalies,
    "second_derivatives": second_derivatives, "shared_memory": shared_memory,
    "one_thread": in_one_thread, "pass_elsewhere": on_another_stream, "late_hook_of_several": late_hook_of_several,
}  # fmt: skip
for kind, runs_pass in KINDS.items():
    add_leaves(kind, runs_pass, odd=3)
    add_leaves(kind, runs_pass, odd=3, casts=True)
    add_leaves(f"{kind}_tied", runs_pass, make=Tied, odd=4)
for casting in (False, True):
    add_leaves("reducer", nothing, before=hooks_of_reducer, casts=casting)
    add_leaves("reducer_tied", nothing, make=Tied, before=hooks_of_reducer, casts=casting)
    add_leaves("other_stream", nothing, before=node_of_another_stream, casts=casting)


def steps_of_heads(run: Run, losses: Callable[[int, Any, torch.Tensor], Iterator[torch.Tensor]]) -> None:
    model = run.put(Heads())
    optimizer, notes = sgd(model), Notes(model)
    for step in run.steps():
        x, y = batch(run)
        out = model(x)
        total = torch.zeros((), device=x.device)
        for loss in losses(step, out, y):
            total = total + loss.detach()
            loss.backward(retain_graph=True)
            notes.note("pass")
        run.see(notes=notes.take())
        see_step(run, total, model, optimizer, out=out)


@program(tags="leaves")
def leaves_of_one_result(run: Run) -> None:
    """The other result's weights have no gradient."""
    steps_of_heads(run, lambda step, out, y: iter([F.mse_loss(out[step % 2], y)]))


@program(tags="leaves")
def leaves_of_results_in_turn(run: Run) -> None:
    steps_of_heads(run, lambda step, out, y: (F.mse_loss(result, y) for result in out[:: 1 if step % 3 else -1]))


@program(tags="leaves")
def leaves_of_two_calls(run: Run) -> None:
    """Both calls lead to each weight, once in the same block of casts."""
    model = run.put(Deep())
    optimizer, notes = sgd(model), Notes(model)
    for step in run.steps():
        x, y = batch(run)
        with autocast(enabled=step % 2 == 1):
            loss = F.mse_loss(model(x), y) + F.mse_loss(model(-x), -y)
        handles = late_hooks(step, model, x, loss, notes) if step % 5 == 4 else []
        loss.backward()
        for handle in handles:
            handle.remove()
        run.see(notes=notes.take())
        see_step(run, loss, model, optimizer)


def leaves_behind(result: torch.Tensor, weights: dict[str, nn.Parameter]) -> str:
    """The weights to which the result's graph leads, as DistributedDataParallel looks for those that are not used."""
    ahead, seen, found = [result.grad_fn], set(), set()
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found |= {name for name, weight in weights.items() if getattr(node, "variable", None) is weight}
        ahead += [following for following, _ in node.next_functions]
    return " ".join(sorted(found))


@program(tags="leaves")
def leaves_behind_results(run: Run) -> None:
    model = run.put(Heads())
    optimizer, weights = sgd(model), dict(model.named_parameters())
    for _ in run.steps():
        x, y = batch(run)
        out = model(x)
        run.see(leaves=[leaves_behind(result, weights) for result in out])
        loss = F.mse_loss(out[0], y) + out[1].square().mean()
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)
