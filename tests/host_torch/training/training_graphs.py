"""Backward passes in other orders than one after each forward: several, partial ones, failing ones, derivatives of derivatives."""

import threading
from typing import Any

import torch
from common import F, Heads, Run, autocast, batch, fit, net, nn, program, see_step, see_tensors, squares
from common import sgd_with_momentum as sgd


def add_two_forwards(first: int) -> None:
    @program(tags="order", name=f"two_forwards_{'same' if first == 0 else 'other'}_order")
    def two(run: Run) -> None:
        model = net(run, nn.Dropout(0.2))
        optimizer = sgd(model)
        for _ in run.steps():
            losses = [squares(model, *batch(run))[0] for _ in range(2)]
            losses[first].backward()
            see_tensors(run, model=model)
            losses[1 - first].backward()
            see_step(run, losses[0], model, optimizer, other=losses[1])

    two.__doc__ = f"Two forwards before the backward passes, of which that of forward {first} is first"


add_two_forwards(0)
add_two_forwards(1)


@program(tags="order")
def backward_a_step_later(run: Run) -> None:
    """Each loss is differentiated after the next forward; the weights are changed without autograd's knowledge."""
    model, kept = net(run), None
    for _ in run.steps():
        loss, out = squares(model, *batch(run))
        if kept is not None:
            kept.backward()
            see_tensors(run, kept=kept, model=model)
            for parameter in model.parameters():
                parameter.data.sub_(parameter.grad, alpha=0.05)
            model.zero_grad()
        see_tensors(run, loss=loss, out=out)
        kept = loss


@program(tags="order")
def four_graphs_at_once(run: Run) -> None:
    """Four graphs live; one is never differentiated, the others in a changing order."""
    model = net(run)
    optimizer = sgd(model)
    for step in run.steps():
        losses = [squares(model, *batch(run))[0] for _ in range(4)]
        for number in [(step + i) % 4 for i in range(3)]:
            losses[number].backward()
        see_step(run, losses[step % 4], model, optimizer)


@program(tags="twice")
def backward_twice(run: Run) -> None:
    """retain_graph and a second pass; a third one fails, and so does a second one without retain_graph."""
    model = net(run)
    optimizer = sgd(model)
    for step in run.steps():
        loss, out = squares(model, *batch(run))
        if step % 2 or step < 4:
            loss.backward(retain_graph=True)
            see_tensors(run, once=model)
        loss.backward()
        if step % 3 == 2:
            with run.expect_error("again"):
                loss.backward()
        see_step(run, loss, model, optimizer, out=out)


def add_changed(what: str) -> None:
    @program(tags="changed", name=f"changed_{what}")
    def changed(run: Run) -> None:
        model = run.put(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4), nn.Sigmoid()))
        optimizer = sgd(model)
        for step in run.steps():
            x, y = batch(run)
            out = model(x)
            loss = (out * 1.0 - y).square().sum()
            if step % 3 == 2:
                with torch.no_grad():
                    {"input": x, "weight": model[2].weight, "result": out}[what].add_(0.5)
            see_tensors(run, x=x, out=out)
            with run.expect_error("backward"):
                loss.backward()
            see_step(run, loss, model, optimizer)

    changed.__doc__ = f"In each third step the {what} is changed in place before the backward pass"


for _what in ("input", "weight", "result"):
    add_changed(_what)


@program(tags="changed")
def result_changed_under_autograd(run: Run) -> None:
    """Operators in place on a result: legal after a linear layer, an error after a sigmoid."""
    legal, illegal = net(run), run.put(nn.Sequential(nn.Linear(8, 4), nn.Sigmoid()))
    optimizer = sgd(nn.ModuleList([legal, illegal]))
    for _ in run.steps():
        x, y = batch(run)
        out = legal(x)
        out.mul_(2.0).relu_()
        loss = F.mse_loss(out, y)
        loss.backward()
        other = illegal(x)
        other += 1.0
        with run.expect_error("backward of a changed sigmoid"):
            other.sum().backward()
        see_step(run, loss, nn.ModuleList([legal, illegal]), optimizer, out=out, other=other)


def add_penalty(when: str) -> None:
    @program(tags="second", name=f"penalty_{when}")
    def penalty(run: Run) -> None:
        more = {"with_dropout": [nn.Dropout(0.2)], "with_batch_norm": [nn.BatchNorm1d(8)]}.get(when, [])
        model = net(run, *more)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in run.steps():
            x, y = batch(run)
            x.requires_grad_()
            loss, out = squares(model, x, y)
            if when == "each_step" or (step >= 8 and step % 5 == 3):
                (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
                see_tensors(run, grad=grad)
                loss = loss + (grad.norm(dim=1) - 1).square().mean()
            loss.backward()
            see_step(run, loss, model, optimizer, x=x)

    penalty.__doc__ = f"A gradient penalty ({when})"


for _when in ("each_step", "every_fifth", "with_dropout", "with_batch_norm"):
    add_penalty(_when)


@program(tags="second")
def penalty_after_a_change(run: Run) -> None:
    """create_graph of a graph whose weight has changed since: an error in each fifth step."""
    model = net(run)
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        x.requires_grad_()
        loss, out = squares(model, x, y)
        if step >= 8 and step % 5 == 3:
            with torch.no_grad():
                model[2].weight.mul_(0.9)
            with run.expect_error("create_graph"):
                torch.autograd.grad(out.sum(), x, create_graph=True)
        with run.expect_error("backward"):
            loss.backward()
        see_step(run, loss, model, optimizer)


@program(tags="partial")
def gradients_of_some_inputs(run: Run) -> None:
    """autograd.grad and backward(inputs=...) for other sets of tensors in each step."""
    first, second = net(run, out=8), net(run)
    both = nn.ModuleList([first, second])
    optimizer = sgd(both)
    for step in run.steps():
        x, y = batch(run)
        x.requires_grad_()
        h = first(x)
        loss = F.mse_loss(second(h), y)
        wanted = [[x], [h], [second[0].weight, x], [first[0].weight, h], [second[2].bias]][step % 5]
        run.see(grads=list(torch.autograd.grad(loss, wanted, retain_graph=True)))
        unused = torch.autograd.grad(h.sum(), [x, second[0].weight], retain_graph=True, allow_unused=True)
        run.see(unused=list(unused))
        with run.expect_error("unused"):
            torch.autograd.grad(h.sum(), [second[0].weight], retain_graph=True)
        loss.backward(inputs=[x, second[0].weight] if step % 2 else None)
        see_step(run, loss, both, optimizer, x=x, h=h)


@program(tags="partial")
def unused_heads(run: Run) -> None:
    """Two heads: only the first is used, then only the second, then both. Adam must not move weights without gradients."""
    upstream, model = run.put(nn.Linear(8, 8)), run.put(Heads())
    both = nn.ModuleList([upstream, model])
    optimizer = torch.optim.Adam(both.parameters(), lr=0.01)
    for step in run.steps():
        x, y = batch(run)
        one, other = model(upstream(x))
        used = [one] if step < 9 else [other] if step < 14 else [one, other]
        loss = torch.stack([F.mse_loss(out, y) for out in used]).sum()
        loss.backward()
        see_step(run, loss, both, optimizer, one=one, other=other)


@program(tags="partial")
def heads_one_after_the_other(run: Run) -> None:
    """Two heads, with a backward pass each; the body's saved values are kept for the second one."""
    model = run.put(Heads())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        one, other = model(x)
        for out in (one, other) if step % 2 else (other, one):
            loss = F.mse_loss(out, y)
            loss.backward(retain_graph=True)
            run.see(**{f"between {out is one}": [p.grad for p in model.parameters()]})
        see_step(run, loss, model, optimizer)


@program(tags="partial")
def disjoint_heads(run: Run) -> None:
    """Results that share no graph: two backward passes are legal without retain_graph."""

    class Disjoint(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"a": self.a(x).tanh(), "b": self.b(x).tanh()}

    model = run.put(Disjoint())
    optimizer = sgd(model)
    for _ in run.steps():
        x, y = batch(run)
        out = model(x)
        F.mse_loss(out["a"], y).backward()
        loss = F.mse_loss(out["b"], y)
        loss.backward()
        with run.expect_error("again"):
            out["a"].sum().backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="gradients")
def gradients_of_other_kinds(run: Run) -> None:
    """Expanded, transposed, sliced, shared and undefined gradients of one result."""
    model = net(run)
    optimizer = sgd(model)
    for step in run.steps():
        x, _ = batch(run)
        out = model(x)
        if step % 6 == 0:
            out.sum().backward()
        elif step % 6 == 1:
            out.mean().backward()
        elif step % 6 == 2:
            out.backward(run.randn(4, 6).t())
        elif step % 6 == 3:
            out[1:3, ::2].sum().backward()
        elif step % 6 == 4:
            torch.autograd.backward([out, out * 2], [torch.ones_like(out)] * 2)
        else:
            out.backward(torch.ones((), device=run.device).expand(6, 4))
        see_step(run, out.detach().sum(), model, optimizer, out=out)


class Kept(nn.Module):
    """Its second result is kept by the graph, and by nobody else once the caller drops it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.one(x).tanh()
        return self.other(h), h


@program(tags="kept")
def dropped_result(run: Run) -> None:
    """A result that the graph needs is dropped before the backward pass, and its memory would be the next tensor's."""
    model = run.put(Kept())
    optimizer = sgd(model)
    for _ in run.steps():
        x, y = batch(run)
        out = model(x)[0]
        del x
        others = [torch.full((6, 8), 7.0, device=y.device) for _ in range(8)]
        loss = F.mse_loss(out, y)
        loss.backward()
        see_step(run, loss, model, optimizer, out=out, others=others)


class Branches(nn.Module):
    """Two results with layers of their own behind a body: (logits, aux)."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.one = nn.Linear(8, 8), nn.Linear(8, 4)
        self.aux = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.body(x).tanh()
        return self.one(h), self.aux(h)


@program(tags="partial kept")
def dropped_branch(run: Run) -> None:
    """An auxiliary head's result is dropped at once: its nodes are gone, and others lie where they did."""
    model = run.put(Branches())
    optimizer = sgd(model)
    for _ in run.steps():
        x, y = batch(run)
        out = model(x)[0]
        others = [out * (i + 1.0) for i in range(16)]
        loss = F.mse_loss(out, y) + sum(other.square().mean() for other in others)
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="partial kept")
def dropped_branch_now_and_then(run: Run) -> None:
    """The auxiliary head's result is dropped in some steps, before the pass or between two passes."""
    upstream, model = run.put(nn.Linear(8, 8)), run.put(Branches())
    both = nn.ModuleList([upstream, model])
    optimizer = sgd(both)
    for step in run.steps():
        x, y = batch(run)
        out, aux = model(upstream(x))
        if step % 3 == 0:
            del aux
            others = [upstream(x) for _ in range(4)]
            loss = F.mse_loss(out, y) + sum(other.mean() for other in others)
        elif step % 3 == 1:
            aux.square().mean().backward(retain_graph=True)
            del aux
            loss = F.mse_loss(out, y)
        else:
            loss = F.mse_loss(out, y) + aux.square().mean()
        loss.backward()
        see_step(run, loss, both, optimizer, out=out)


@program(tags="partial second")
def dropped_branch_and_second_derivatives(run: Run) -> None:
    """As before, and a pass that was not foreseen makes a graph."""
    model = run.put(Branches())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        with autocast(enabled=step % 2 == 0):
            out = model(x)[0]
        loss = F.mse_loss(out.float(), y)
        if step > 8 and step % 4 < 2:
            norms = torch.autograd.grad(loss, [model.body.weight, model.one.weight], create_graph=True)
            loss = loss + sum(grad.float().square().sum() for grad in norms)
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="gradients")
def head_on_the_cpu(run: Run) -> None:
    """The loss of one head is computed on the CPU: its gradient comes late, and the pass ends on another thread."""
    model = run.put(Heads())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        one, other = model(x)
        first = F.mse_loss(one.cpu(), y.cpu()).to(one.device) if step % 5 else F.mse_loss(one, y)
        loss = first + F.mse_loss(other, y)
        loss.backward()
        see_step(run, loss, model, optimizer, one=one, other=other)


@program(tags="gradients")
def one_gradient_for_two_results(run: Run) -> None:
    """Two results get the very same gradient tensor; the caller keeps it, and it must not change."""
    model = run.put(Heads())
    optimizer = sgd(model)
    for _ in run.steps():
        x, _ = batch(run)
        grad = run.randn(6, 4)
        results = model(x)
        torch.autograd.backward(results, [grad, grad])
        see_step(run, grad.sum(), model, optimizer, grad=grad, results=results)


class Shift(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(6, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.bias


@program(tags="gradients")
def gradient_passed_through(run: Run) -> None:
    """The gradient of a sum's parts is the very tensor that came in, and stays so as long as it can."""
    model = run.put(Shift())
    optimizer = sgd(model)
    for _ in run.steps():
        x, _ = batch(run)
        x.requires_grad_()
        out, grad = model(x), run.randn(6, 8)
        (through,) = torch.autograd.grad(out, x, grad, retain_graph=True)
        run.see(is_same=through is grad, address=through.data_ptr() == grad.data_ptr())
        out.backward(grad)
        run.see(shared=[p.grad.data_ptr() == grad.data_ptr() for p in (x, model.bias)])
        see_step(run, out.detach().sum(), model, optimizer, x=x, grad=grad)


@program(tags="threads")
def forward_while_backward_runs(run: Run) -> None:
    """Another thread calls a model, gradients on, while a hook holds this one's backward pass."""
    ours, theirs = net(run, nn.Linear(8, 8)), net(run)
    optimizer, found = sgd(nn.ModuleList([ours, theirs])), []
    for _ in run.steps():
        (x, y), (a, b) = batch(run), batch(run)
        h = ours[0](x)
        loss = F.mse_loss(ours[3](ours[2](ours[1](h))), y)
        entered, done = threading.Event(), threading.Event()

        def hold(grad: torch.Tensor, entered: Any = entered, done: Any = done) -> None:
            entered.set()
            assert done.wait(60)

        def other(a: torch.Tensor = a, b: torch.Tensor = b, entered: Any = entered, done: Any = done) -> None:
            assert entered.wait(60)
            found.append(F.mse_loss(theirs(a), b))
            done.set()

        h.register_hook(hold)
        thread = threading.Thread(target=other)
        thread.start()
        loss.backward()
        thread.join()
        second = found.pop()
        second.backward()
        see_step(run, loss, nn.ModuleList([ours, theirs]), optimizer, second=second)


@program(tags="threads")
def backward_by_another_thread(run: Run) -> None:
    """The forward is one thread's, the backward another's."""
    model = net(run)
    optimizer = sgd(model)
    for _ in run.steps():
        loss, out = squares(model, *batch(run))
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
        see_step(run, loss, model, optimizer, out=out)


class Straight(torch.autograd.Function):
    """Rounds, and passes the gradient; its tensor stands on ctx."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.slope = (x.abs() < 1).to(x.dtype)
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * ctx.slope + 0.0 * x


@program(tags="function")
def custom_function(run: Run) -> None:
    """A custom Function inside of the net, with a tensor on ctx."""

    class Rounds(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Straight.apply(x)

    fit(run, net(run, Rounds(), nn.Linear(8, 8)))
