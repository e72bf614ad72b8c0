"""Several losses on one call, each with a pass, a moment and an optimizer of its own."""

import threading
from typing import Any, Callable

import torch
from common import F, Heads, Run, batch, net, nn, program, see_step, sgd, sgd_with_momentum

Step = Callable[[Run, int, nn.Module, torch.optim.Optimizer], Any]  # a step; what it gives is seen


class Shared(nn.Module):
    """A body with statistics, two heads, and a result that nobody's weights come behind."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2))
        self.actor, self.critic = nn.Linear(8, 4), nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        h = self.body(x)
        scores = self.actor(h)
        return {"scores": scores, "value": self.critic(h), "entropy": -(scores.softmax(1) * scores.log_softmax(1)).sum(1)}


def add(name: str, make: Callable[[], nn.Module], about: str) -> Callable[[Step], Step]:
    def decorate(step_of: Step) -> Step:
        @program(tags="tasks", name=f"tasks_{name}")
        def tasks(run: Run) -> None:
            model = run.put(make())
            optimizer = sgd_with_momentum(model)
            for step in run.steps():
                seen = step_of(run, step, model, optimizer)
                see_step(run, torch.zeros(1), model, optimizer, **(seen or {}))

        tasks.__doc__ = about
        return step_of

    return decorate


def policy(out: dict[str, torch.Tensor]) -> torch.Tensor:
    return out["scores"].log_softmax(1)[:, 0].mean() - 0.01 * out["entropy"].mean()


@add("actor_first", Shared, "The actor's pass keeps the graph, the critic's does not")
def actor_first(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    x, y = batch(run)
    out = model(x)
    policy(out).backward(retain_graph=True)
    (out["value"] - y[:, :1]).square().mean().backward()
    return out


@add("entropy_alone", Shared, "In some steps a result has a pass of its own, in others none; the graph is kept until then")
def entropy_alone(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    x, y = batch(run)
    out = model(x)
    (out["value"] - y[:, :1]).square().mean().backward(retain_graph=step % 3 == 0)
    if step % 3 == 0:
        out["entropy"].mean().backward()
    return out


@add("weights_of_tasks", Shared, "Gradients of the shared layer, per task, weight the losses")
def weights_of_tasks(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    x, y = batch(run)
    out = model(x)
    losses = [policy(out), (out["value"] - y[:, :1]).square().mean()]
    shared = model.body[0].weight
    norms = [torch.autograd.grad(loss, shared, retain_graph=True)[0].norm() for loss in losses]
    sum(loss / (norm + 1) for loss, norm in zip(losses, norms)).backward()
    return {"norms": norms}


@add("detached_critic", Shared, "A loss that one of the heads does not get a gradient of; autograd.backward of both")
def detached_critic(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    x, y = batch(run)
    out = model(x)
    advantage = (y[:, :1] - out["value"]).detach()
    torch.autograd.backward([(out["scores"][:, :1] * advantage).mean(), out["value"].mean() * (step % 2)])
    return None


@add("not_detached", lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh()), "A hidden state that is not detached in some steps is an error there")
def not_detached(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    x, _ = batch(run)
    h = x
    for part in range(3):
        h = model(h)
        with run.expect_error(f"part {part}"):
            h.square().mean().backward()
        if step < 12 or part == 0:
            h = h.detach()
    return {"h": h}


@add("stepped_between", lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)), "The weights are stepped between two passes of one graph")
def stepped_between(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    x, y = batch(run)
    out = model(x)
    F.mse_loss(out, y).backward(retain_graph=True)
    if step >= 12:
        optimizer.step()
    with run.expect_error("second"):
        F.l1_loss(out, y).backward()
    return {"out": out}


@add("dropped_first", Shared, "A first call's results are dropped, a second one's are used")
def dropped_first(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    x, y = batch(run)
    model(x)
    out = model(y.repeat(1, 2))
    policy(out).backward()
    return out


@add("passes_in_a_thread", Heads, "The passes run in another thread")
def passes_in_a_thread(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    x, y = batch(run)
    one, other = model(x)

    def run_passes() -> None:
        F.mse_loss(one, y).backward(retain_graph=True)
        F.mse_loss(other, y).backward()

    thread = threading.Thread(target=run_passes)
    thread.start()
    thread.join()
    return {"one": one}


@add("kept_graphs", lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)), "The graphs of earlier steps are kept, and have a pass later")
def kept_graphs(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    x, y = batch(run)
    kept = model.__dict__.setdefault("kept", [])
    kept.append((model(x), y))
    with torch.no_grad():
        x.add_(1)
    if len(kept) == 3:
        out, then = kept.pop(0)
        with run.expect_error("old"):
            F.mse_loss(out, then).backward()
    return {"kept": len(kept)}


@add("momentum_teacher", Shared, "A teacher of averaged weights, in training mode, without gradients")
def momentum_teacher(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    if "teacher" not in model.__dict__:
        model.__dict__["teacher"] = run.put(Shared())
    teacher = model.__dict__["teacher"]
    x, _ = batch(run)
    with torch.no_grad():
        target = teacher(x)["scores"].softmax(1)
        for ours, theirs in zip(teacher.parameters(), model.parameters()):
            ours.lerp_(theirs, 0.1)
    out = model(x * 1.1)
    F.cross_entropy(out["scores"], target).backward()
    return {"target": target}


@add("two_optimizers", Heads, "Each head has an optimizer, whose gradients are set to none in between")
def two_optimizers(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    x, y = batch(run)
    one, other = model(x)
    F.mse_loss(one, y).backward(retain_graph=True)
    first = [weight.grad.clone() for weight in model.body.parameters()]
    optimizer.step()
    optimizer.zero_grad(set_to_none=step % 2 == 0)
    with run.expect_error("other"):
        F.mse_loss(other, y).backward()
    return {"first": first}


@program(tags="tasks")
def tasks_attacked_in_evaluation(run: Run) -> None:
    """Steps on the argument in evaluation, whose weights have no gradients, then a step on the weights."""
    model = net(run, nn.BatchNorm1d(8), nn.Dropout(0.2))
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        model.eval().requires_grad_(False)
        moved = x.clone()
        for _ in range(2):
            moved.requires_grad_()
            (gradient,) = torch.autograd.grad(F.mse_loss(model(moved), y), moved)
            moved = (moved.detach() + 0.1 * gradient.sign()).clamp(x - 0.3, x + 0.3)
        model.train().requires_grad_(True)
        loss = F.mse_loss(model(moved), y) + F.mse_loss(model(x), y)
        loss.backward()
        see_step(run, loss, model, optimizer, moved=moved)


@program(tags="tasks")
def tasks_looking_ahead(run: Run) -> None:
    """Slow weights, behind autograd's back, in each fourth step."""
    model = net(run, nn.LayerNorm(8))
    optimizer = sgd(model, momentum=0.9, nesterov=True)
    slow = [weight.detach().clone() for weight in model.parameters()]
    for step in run.steps():
        x, y = batch(run)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        see_step(run, loss, model, optimizer)
        if step % 4 == 3:
            for ours, theirs in zip(slow, model.parameters()):
                ours.lerp_(theirs.data, 0.5)
                theirs.data.copy_(ours)


class Staged(nn.Module):
    """Features, and what comes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.first(x)
        return features, self.last(features)


@add("split_pass", Staged, "A pass down to the features, then one from there: none keeps the graph, each frees its own part")
def split_pass(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    x, y = batch(run)
    features, out = model(x)
    weights = list(model.last.parameters())
    gradient, *others = torch.autograd.grad(F.mse_loss(out, y), [features, *weights])
    for weight, one in zip(weights, others):
        weight.grad = one
    features.backward(gradient)
    with run.expect_error("again"):
        F.mse_loss(out, y).backward()
    return {"gradient": gradient}


@add("split_late", Staged, "The same from step 12 on; whole passes before that")
def split_late(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    x, y = batch(run)
    if step >= 12:
        return split_pass(run, step, model, optimizer)
    features, out = model(x)
    (F.mse_loss(out, y) + features.mean()).backward()
    return None


@add("one_by_one", lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)), "A pass for each row; the last one does not keep the graph")
def one_by_one(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    x, y = batch(run)
    out = model(x)
    rows = list(range(3 + step % 2))
    for row in rows:
        F.mse_loss(out[row], y[row]).backward(retain_graph=row != rows[-1])
    with run.expect_error("one more"):
        F.mse_loss(out[0], y[0]).backward()
    return {"out": out}


@add("emptied_batch", lambda: Named(), "The batch is emptied between call and pass")
def emptied_batch(run: Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    x, y = batch(run)
    given = {"x": x, "mask": (x > 0).float()}
    loss = F.mse_loss(model(given), y)
    given.clear()
    loss.backward(retain_graph=step >= 14)
    if step >= 14:
        loss.backward()
    return {"left": len(given)}


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, given: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.net(given["x"] * given["mask"])
