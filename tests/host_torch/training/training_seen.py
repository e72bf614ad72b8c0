"""Gradients of results of which other results were computed: who sees them sees those of inner nodes, too."""

from collections.abc import Callable
from typing import Any

import torch
from common import F, Run, autocast, batch, nn, program, see_step


class Features(nn.Module):
    """Three layers, whose results are all returned, and parts of one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = self.one(x).tanh()
        second = self.two(first).tanh()
        return first, second, self.three(second + first)


class Pieces(nn.Module):
    """One node makes two results; the third one is computed of one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(1, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, _ = self.one(x).max(1, keepdim=True)
        deviation, mean = torch.std_mean(self.one(x), 1, keepdim=True)
        return deviation, mean, self.two(deviation * mean + values)


def add_seen(name: str, about: str, see: Callable[..., Any], make: Callable[[], nn.Module] = Features) -> None:
    """`see(step, results, loss, notes)` looks at results, and runs passes unless it returns None."""

    @program(tags="seen", name=f"seen_{name}")
    def seen(run: Run) -> None:
        before, model = run.put(nn.Linear(8, 8)), run.put(make())
        every = nn.ModuleList([before, model])
        optimizer = torch.optim.SGD(every.parameters(), lr=0.05)
        notes: list[str] = []
        for label, weight in every.named_parameters():
            weight.register_post_accumulate_grad_hook(lambda weight, label=label: notes.append(label))
        for step in run.steps():
            x, y = batch(run)
            results = model(before(x))
            loss = F.mse_loss(results[2], y)
            if step % 3 == 1:
                loss = loss + results[0].square().mean() + results[1].sin().mean()
            found = None
            try:
                found = see(step, results, loss, notes)
                if found is None:
                    loss.backward()
            except RuntimeError as error:  # it comes earlier in a replay than in eager
                run.see(error=error)
                notes.clear()
                optimizer.zero_grad()
            except ValueError as error:
                run.see(error=error)
            run.see(notes=list(notes))
            notes.clear()
            see_step(run, loss, every, optimizer, results=results, found=found)

    seen.__doc__ = about


def note(notes: list[str], label: str) -> Callable[[torch.Tensor], None]:
    return lambda grad: notes.append(f"{label} {grad.double().sum().item()!r}")


def retained(step: int, results: Any, loss: Any, notes: Any) -> None:
    for result in results[:2]:
        result.retain_grad()


def retained_late(step: int, results: Any, loss: Any, notes: Any) -> None:
    if step > 6 and step % 2:
        results[step // 2 % 2].retain_grad()


def hooked_late(step: int, results: Any, loss: Any, notes: Any) -> None:
    if step > 6:
        for number, result in enumerate(results):
            result.register_hook(note(notes, f"result {number}"))
        results[1].register_hook(lambda grad: grad * 0.5)


def nodes_hooked_late(step: int, results: Any, loss: Any, notes: Any) -> None:
    if step > 6:
        for number, result in enumerate(results[:2]):
            result.grad_fn.register_prehook(lambda grads, number=number: note(notes, f"before {number}")(grads[0]))
        if step % 2:
            results[0].grad_fn.register_hook(lambda into, of: note(notes, "behind")(of[0]))


def asked_late(step: int, results: Any, loss: Any, notes: Any) -> Any:
    if step < 7:
        return None
    return list(torch.autograd.grad(loss, [results[step % 2], results[2]]))


def asked_with_inputs(step: int, results: Any, loss: Any, notes: Any) -> Any:
    if step < 7:
        return None
    results[0].retain_grad()
    results[1].retain_grad()
    loss.backward(inputs=[results[step % 2]])
    return []


def asked_unused(step: int, results: Any, loss: Any, notes: Any) -> Any:
    if step < 7 or step % 2:
        return None
    return list(torch.autograd.grad(results[0].square().mean(), results, allow_unused=True))


def asked_then_plain(step: int, results: Any, loss: Any, notes: Any) -> Any:
    if step < 7:
        return None
    found = torch.autograd.grad(loss, results[:2], retain_graph=True)
    loss.backward(retain_graph=step % 2 == 0)
    if step % 2 == 0:
        loss.backward()
    return list(found)


def plain_then_hooked(step: int, results: Any, loss: Any, notes: Any) -> Any:
    if step < 7:
        return None
    loss.backward(retain_graph=step % 3 != 0)
    results[0].register_hook(note(notes, "result 0"))
    results[1].retain_grad()
    loss.backward()
    return []


def penalized(step: int, results: Any, loss: Any, notes: Any) -> Any:
    if step < 7:
        return None
    grads = torch.autograd.grad(loss, results[:2], create_graph=True)
    (loss + sum(grad.square().sum() for grad in grads)).backward()
    return list(grads)


def raised(step: int, results: Any, loss: Any, notes: Any) -> None:
    def stop(grad: torch.Tensor) -> None:
        raise ValueError("enough")

    if step > 6 and step % 2:
        results[0].register_hook(stop)


def changed(step: int, results: Any, loss: Any, notes: Any) -> None:
    if step > 6 and step % 2:
        results[0].retain_grad()
        with torch.no_grad():
            results[1].mul_(2.0)


def dropped(step: int, results: Any, loss: Any, notes: Any) -> Any:
    if step < 7:
        return None
    results[1].register_hook(note(notes, "result 1"))
    results[0].sum().backward(retain_graph=True)
    loss.backward()
    return []


add_seen("retained", "Gradients of features are retained in each step", retained)
add_seen("retained_late", "Gradients of a feature are retained in late steps", retained_late)
add_seen("hooked_late", "Hooks on features in late steps, of which one changes the gradient", hooked_late)
add_seen("nodes_hooked_late", "Hooks on the nodes that made features", nodes_hooked_late)
add_seen("asked_late", "autograd.grad of features in late steps", asked_late)
add_seen("asked_with_inputs", "backward(inputs=...) of features in late steps", asked_with_inputs)
add_seen("asked_unused", "autograd.grad of features that the loss does not lead to", asked_unused)
add_seen("asked_then_plain", "autograd.grad of features, then backward, once or twice", asked_then_plain)
add_seen("after_a_plain_pass", "A second pass, with hooks on features; in some steps it is an error", plain_then_hooked)
add_seen("with_a_penalty", "Gradients of features are differentiated", penalized)
add_seen("by_a_hook_that_raises", "A hook on a feature raises", raised)
add_seen("after_a_change", "A feature was changed since, without autograd", changed)
add_seen("between_two_passes", "A pass of a feature alone, then the loss's", dropped)
add_seen("pieces_retained_late", "One node made two results", retained_late, Pieces)
add_seen("pieces_asked_late", "autograd.grad of results that one node made", asked_late, Pieces)


@program(tags="seen")
def seen_under_autocast(run: Run) -> None:
    """Features are retained, and asked for, under autocast, whose casts are kept."""
    model = run.put(Features())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        x, y = batch(run)
        with autocast():
            results = model(x)
            again = model(x * 0.5)
        loss = F.mse_loss(results[2].float() + again[0][:, :4].float(), y)
        found = []
        if step > 6 and step % 2:
            results[0].retain_grad()
            again[1].retain_grad()
            found = list(torch.autograd.grad(loss, [results[1], again[0]], retain_graph=True))
        loss.backward()
        see_step(run, loss, model, optimizer, results=results, again=again, found=found)


@program(tags="seen")
def seen_of_two_calls(run: Run) -> None:
    """Features of a call go into a second one; some of both are seen in late steps."""
    first, second = run.put(Features()), run.put(Features())
    every = nn.ModuleList([first, second])
    optimizer = torch.optim.SGD(every.parameters(), lr=0.05)
    for step in run.steps():
        x, y = batch(run)
        one = first(x)
        other = second(one[0] + one[1])
        loss = F.mse_loss(other[2] + one[2], y)
        found = []
        if step > 6:
            for result in (one[0], other[1])[: 1 + step % 2]:
                result.register_hook(lambda grad: grad * 2.0)
            found = list(torch.autograd.grad(loss, [one[1], other[0]], retain_graph=True)) if step % 3 else []
        loss.backward()
        see_step(run, loss, every, optimizer, one=one, other=other, found=found)


@program(tags="seen")
def order_of_all_hooks(run: Run) -> None:
    """Hooks on each weight and each result of three modules in a row, before and after gradients are added."""
    models = nn.ModuleList([run.put(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))) for _ in range(3)])
    optimizer = torch.optim.SGD(models.parameters(), lr=0.05)
    notes: list[str] = []
    for label, weight in models.named_parameters():
        weight.register_hook(note(notes, f"gradient of {label}"))
        weight.register_post_accumulate_grad_hook(lambda weight, label=label: notes.append(label))
    for _ in run.steps():
        x, y = run.randn(6, 8), run.randn(6, 8)
        for number, model in enumerate(models):
            x = model(x)
            x.register_hook(note(notes, f"result {number}"))
        loss = F.mse_loss(x, y)
        loss.backward()
        run.see(notes=list(notes))
        notes.clear()
        see_step(run, loss, models, optimizer)


@program(tags="seen")
def hooks_on_many_gradients(run: Run) -> None:
    """register_multi_grad_hook on results and weights, for all and for any of them, and what the loss does not reach."""
    model = run.put(Features())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    notes: list[str] = []
    for step in run.steps():
        x, y = batch(run)
        results = model(x)
        hooks = []
        if step % 3:
            watched = [results[step % 2], results[2], model.one.weight][: 1 + step % 3]
            on_all = torch.autograd.graph.register_multi_grad_hook(
                watched, lambda grads: notes.append(f"all {[g is not None and g.sum().item() for g in grads]}"), mode="all"
            )
            on_any = torch.autograd.graph.register_multi_grad_hook(
                watched[:2], lambda grad: notes.append(f"any {grad.sum().item()!r}"), mode="any"
            )
            hooks = [on_all, on_any]
        loss = F.mse_loss(results[2], y) if step % 4 else results[0].square().mean()
        loss.backward()
        run.see(notes=list(notes))
        notes.clear()
        for hook in hooks:
            hook.remove()
        see_step(run, loss, model, optimizer)


@program(tags="seen")
def edges_of_gradients(run: Run) -> None:
    """GradientEdge of results and weights, from which and to which passes go."""
    model = run.put(Features())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    edge = torch.autograd.graph.get_gradient_edge
    for step in run.steps():
        x, y = batch(run)
        results = model(x)
        found = ()
        if step > 6 and step % 2:
            edges = [edge(results[1]), edge(model.two.weight), edge(results[0])][: 1 + step % 3]
            found = torch.autograd.grad([edge(results[2])], edges, [y], retain_graph=True)
        loss = F.mse_loss(results[2], y)
        loss.backward()
        see_step(run, loss, model, optimizer)
        run.see(found=[part.sum().item() for part in found])


@program(tags="seen")
def backward_hooks_of_modules_late(run: Run) -> None:
    """Full backward hooks, and those before, come to modules and go, after replays have begun."""
    model = run.put(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    notes: list[str] = []
    for step in run.steps():
        x, y = batch(run)
        hooks = []
        if step % 6 > 3:
            hooks.append(model.register_full_backward_hook(lambda module, into, of: note(notes, "after")(of[0])))
            hooks.append(model.register_full_backward_pre_hook(lambda module, of: note(notes, "before")(of[0])))
            hooks.append(model[0].register_full_backward_hook(lambda module, into, of: note(notes, "inside")(of[0])))
        loss = F.mse_loss(model(x.requires_grad_(step % 2 == 0)), y)
        loss.backward()
        run.see(notes=list(notes))
        notes.clear()
        for hook in hooks:
            hook.remove()
        see_step(run, loss, model, optimizer, x=x)
