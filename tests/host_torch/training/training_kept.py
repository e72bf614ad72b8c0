"""Results that are dropped, kept, copied, moved and changed after the call, and graphs that die in strange places."""

import copy
import gc
import pickle
import threading
import weakref
from collections import deque
from typing import Any, Callable

import torch
from common import F, Heads, Run, batch, fit, net, nn, program, see_step, see_tensors, sgd, squares


class Three(nn.Module):
    """A body, and three heads of it; the results are a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.heads = nn.ModuleList(nn.Linear(8, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        h = self.body(x)
        return {"features": h, **{f"head{i}": head(h) for i, head in enumerate(self.heads)}}


@program(tags="kept")
def history_of_losses(run: Run) -> None:
    """Each step's loss is kept with its graph; their mean is printed, and in the end one of them is differentiated again."""
    model, history = net(run), []
    optimizer = sgd(model)
    for _ in run.steps():
        loss, out = squares(model, *batch(run))
        history.append(loss)
        loss.backward()
        run.see(mean=float(sum(history) / len(history)), node=history[0].grad_fn.name())
        see_step(run, loss, model, optimizer, out=out)
    with run.expect_error("again"):
        history[-3].backward()


@program(tags="kept")
def history_of_results(run: Run) -> None:
    """Results of the last four steps are kept with their graphs, and read later, never differentiated again."""
    model, history = net(run), deque(maxlen=4)
    optimizer = sgd(model)
    for _ in run.steps():
        loss, out = squares(model, *batch(run))
        history.append(out)
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)
        see_tensors(run, kept=list(history))


@program(tags="kept")
def replay_buffer(run: Run) -> None:
    """Results that require grad go into a buffer; later losses use old ones, whose graphs were freed or never were used."""
    model, old = net(run, out=8), []
    optimizer = sgd(model)
    for step in run.steps():
        x, _ = batch(run)
        out = model(x)
        old.append(out)
        loss = out.square().mean() + sum((kept.detach() - out).square().mean() for kept in old[-3:-1])
        if step % 6 == 5:
            with run.expect_error("an old one"):
                (loss + old[-2].mean()).backward()
        elif step % 6 == 4:
            del loss
            continue
        else:
            loss.backward()
        see_step(run, out.mean(), model, optimizer, out=out)


@program(tags="kept")
def several_steps_in_one_pass(run: Run) -> None:
    """Losses of three steps are added up in a list, and differentiated at once: truncated backward through time."""
    model, losses = net(run), []
    optimizer = sgd(model)
    for step in run.steps():
        loss, out = squares(model, *batch(run))
        losses.append(loss)
        see_tensors(run, loss=loss, out=out)
        if len(losses) == 1 + step % 4:
            total = torch.stack(losses).sum()
            total.backward()
            see_step(run, total, model, optimizer)
            losses.clear()


@program(tags="kept")
def heads_in_changing_sets(run: Run) -> None:
    """Of a dictionary of results other ones are dropped at once in each step, others later, others are used."""
    model = run.put(Three())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in run.steps():
        x, y = batch(run)
        out = model(x)
        used = out.pop(f"head{step % 3}")
        if step % 2:
            out.pop(f"head{(step + 1) % 3}")
        if step % 5 == 4:
            out.clear()
        loss = F.mse_loss(used, y)
        loss.backward()
        see_step(run, loss, model, optimizer, used=used, others=out)


@program(tags="kept")
def heads_dropped_while_the_pass_runs(run: Run) -> None:
    """A hook drops results, of heads and of the body, while the backward pass runs."""
    model = run.put(Three())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        out = model(x)
        loss = F.mse_loss(out["head0"], y) + (out["head1"].mean() if step % 3 == 0 else 0.0)
        loss.register_hook(lambda grad, out=out: out.clear())
        loss.backward()
        run.see(left=list(out))
        see_step(run, loss, model, optimizer)


@program(tags="life")
def graphs_that_die_in_cycles(run: Run) -> None:
    """Each result stands in a reference cycle, which the garbage collector ends some steps later."""
    model = net(run)
    optimizer = sgd(model)
    gc.disable()
    for step in run.steps():
        loss, out = squares(model, *batch(run))
        cycle: dict[str, Any] = {"out": out}
        cycle["self"] = cycle
        if step % 3:
            loss.backward()
            see_step(run, loss, model, optimizer)
        alive = weakref.ref(out)
        del cycle, out, loss
        if step % 4 == 3:
            gc.collect()
        run.see(alive=alive() is not None)
    gc.enable()


class Last:
    """Does something with a tensor as it dies."""

    def __init__(self, value: Any, what: Callable[[Any], None]) -> None:
        self.value, self.what = value, what

    def __del__(self) -> None:
        self.what(self.value)


@program(tags="life")
def passes_in_finalizers(run: Run) -> None:
    """A finalizer runs the backward pass of a loss: as its holder dies, and as the garbage collector ends a cycle."""
    model = net(run)
    optimizer = sgd(model)
    for step in run.steps():
        loss, out = squares(model, *batch(run))
        holder = Last(loss, lambda value: value.backward())
        if step % 2:
            holder.myself = holder
        del holder
        gc.collect()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="life")
def calls_in_finalizers(run: Run) -> None:
    """A finalizer calls the model, while the results of another call die, within a hook of a backward pass."""
    model, seen = net(run), []
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        loss, out = squares(model, x, y)
        holder = [Last(x, lambda value: seen.append(model(value).sum()))]
        if step % 2:
            out.register_hook(lambda grad, holder=holder: holder.clear())
        else:
            holder.clear()
        loss.backward()
        run.see(seen=list(seen))
        seen.clear()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="threads life")
def graphs_that_die_elsewhere(run: Run) -> None:
    """Another thread drops the last reference to a graph, before, during and after passes of this thread."""
    model, box = net(run), []
    optimizer = sgd(model)
    wake, done = threading.Event(), threading.Event()
    ended = False

    def drop() -> None:
        while True:
            wake.wait()
            wake.clear()
            box.clear()
            done.set()
            if ended:
                return

    thread = threading.Thread(target=drop)
    thread.start()

    def now() -> None:
        done.clear()
        wake.set()
        done.wait()

    for step in run.steps():
        box.append(model(batch(run)[0]))
        loss, out = squares(model, *batch(run))
        if step % 3 == 0:
            now()
        if step % 3 == 1:
            out.register_hook(lambda grad: now())
        loss.backward()
        if step % 3 == 2:
            now()
        see_step(run, loss, model, optimizer, out=out)
    ended = True
    wake.set()
    thread.join()


@program(tags="kept")
def results_copied(run: Run) -> None:
    """Results are deep-copied (an error unless detached), copied, pickled, saved, and made into arrays."""
    model = net(run)
    optimizer = sgd(model)
    for step in run.steps():
        loss, out = squares(model, *batch(run))
        with run.expect_error("deepcopy"):
            copy.deepcopy(out)
        with run.expect_error("numpy"):
            out.cpu().numpy()
        with run.expect_error("pickle"):
            run.see(pickled=pickle.loads(pickle.dumps(out)))
        shallow = copy.copy(out)
        run.see(array=out.detach().cpu().numpy().sum().item(), items=out.tolist()[0], copied=copy.deepcopy(out.detach()))
        (loss + shallow.mean() if step % 2 else loss).backward()
        see_step(run, loss, model, optimizer, out=out, shallow=shallow)


@program(tags="kept")
def results_to_other_places(run: Run) -> None:
    """The loss is computed on the CPU, or in other types, of parts of the result, in changing ways."""
    model = net(run)
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        out = model(x)
        how = step % 4
        given = out.cpu() if how == 0 else out.double() if how == 1 else out.half().float() if how == 2 else out[:3].cpu()
        loss = F.mse_loss(given, y.to(given)[: len(given)])
        loss.backward()
        see_step(run, loss, model, optimizer, out=out, given=given)


@program(tags="kept")
def scattered(run: Run) -> None:
    """A batch is cut into pieces on one device; results are gathered as DataParallel does."""
    model = net(run)
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        pieces = x.chunk(1 + step % 3)
        out = torch.cat([model(piece) for piece in pieces])
        loss = F.mse_loss(out, y)
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="kept")
def data_parallel_on_one_device(run: Run) -> None:
    """nn.DataParallel with one device."""
    model = nn.DataParallel(net(run), device_ids=[0])
    fit(run, model)


def add_in_place(name: str, about: str, change: Callable[[torch.Tensor, torch.Tensor], Any], out: int = 4) -> None:
    @program(tags="in_place", name=f"in_place_after_{name}")
    def in_place(run: Run) -> None:
        first, model = run.put(nn.Linear(8, 8)), net(run, out=out)
        both = nn.ModuleList([first, model])
        optimizer = sgd(both)
        for step in run.steps():
            x, y = batch(run)
            h = first(x)
            result = model(h)
            with run.expect_error("the change"):
                used = change(result, y)
                loss = F.mse_loss(used, y)
                loss.backward()
            see_step(run, loss, both, optimizer, result=result, used=used, h=h)

    in_place.__doc__ = about


def changed_views(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out[:, :2].mul_(2.0)
    out[1].zero_()
    out.t()[0].add_(1.0)
    return out


def added(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out += y
    return out


def masked(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out[y > 0] = 0.5
    return out


def part_of_buffer(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    buffer = torch.zeros_like(y)
    buffer[:3] = out[:3]
    buffer[3:].copy_(out[3:])
    return buffer


def detached_later(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = out.square().mean()
    out.detach_()
    return loss + (out - y) * 1.0


def graph_given(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    other = out.detach().requires_grad_()
    other.square().sum().backward()
    return out * other.grad


def flag_set(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out.requires_grad_()
    with torch.no_grad():
        out.clamp_(-1.0, 1.0)
    return out


def set_out(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    kept = out * 1.0
    out.data = torch.zeros_like(out)
    return kept + out


def unsqueezed(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return out.unsqueeze_(0).transpose_(1, 2).squeeze_(0).t_()


def resized_under_no_grad(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    view = out.view(-1)
    view[::3] *= 2.0
    return view.view_as(y)


add_in_place("relu", "relu_ of a result", lambda out, y: out.relu_())
add_in_place("functional_relu", "relu_, then dropout in place", lambda out, y: F.dropout(F.relu(out, True), 0.5, True, True))
add_in_place("sum", "A result is added to", added)
add_in_place("views", "Views of a result are changed in place", changed_views)
add_in_place("mask", "Elements of a result are set by a mask", masked)
add_in_place("parts", "Parts of a result are written into another tensor", part_of_buffer)
add_in_place("detach", "detach_() of a result after its use", detached_later)
add_in_place("leaf", "A leaf is made of a result, and its gradient is used", graph_given)
add_in_place("flag", "requires_grad_() of a result, and a change without autograd", flag_set)
add_in_place("data", "A result gets other data", set_out)
add_in_place("shape", "unsqueeze_, transpose_, squeeze_ and t_ of a result", unsqueezed)
add_in_place("strided_view", "A strided view of a flat view is changed", resized_under_no_grad)
add_in_place("exponential", "exp_ of a result, whose own result is saved", lambda out, y: out.exp_())
add_in_place("fill", "A result is overwritten wholly", lambda out, y: out.copy_(y).requires_grad_())


@program(tags="kept")
def result_that_detaches_itself(run: Run) -> None:
    """detach_() of the only result in each third step before a pass; the graph dies, and the pass is an error."""
    model = net(run)
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        out = model(x)
        if step % 3 == 2:
            out.detach_()
        with run.expect_error("the pass"):
            loss = F.mse_loss(out, y)
            loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="kept")
def views_that_outlive_the_base(run: Run) -> None:
    """Only views of results are kept, and used for the loss after the result itself and its module's call are gone."""
    model = run.put(Heads())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        parts = model(x)[0].unbind(1) if step % 2 else model(x)[1].split(3)
        gc.collect()
        loss = sum(part.square().mean() for part in parts[:2])
        loss.backward()
        see_step(run, loss, model, optimizer, parts=list(parts))


@program(tags="kept")
def loss_alone_survives(run: Run) -> None:
    """Module, arguments and results are gone when the loss is differentiated; gradients are read from a list."""
    for step in run.steps():
        torch.manual_seed(step)
        model = net(run)
        weights = list(model.parameters())
        loss = sum(squares(model, *batch(run))[0] for _ in range(3))
        del model
        gc.collect()
        loss.backward()
        run.see(loss=loss, weights=weights)


@program(tags="kept")
def module_of_each_step(run: Run) -> None:
    """One class, a new module in each step, trained for some inner steps (meta-learning without second derivatives)."""
    base = net(run)
    outer = sgd(base)
    for _ in run.steps():
        fast = copy.deepcopy(base)
        inner = torch.optim.SGD(fast.parameters(), lr=0.1)
        for _ in range(2):
            loss, _ = squares(fast, *batch(run))
            inner.zero_grad()
            loss.backward()
            inner.step()
        loss, out = squares(fast, *batch(run))
        grads = torch.autograd.grad(loss, list(fast.parameters()))
        for weight, grad in zip(base.parameters(), grads):
            weight.grad = grad
        see_step(run, loss, base, outer, out=out)


def add_changed_later(name: str, about: str, change: Callable[[torch.Tensor], Any], of_argument: bool) -> None:
    """`change` of a tensor that nodes of the call keep, as the program has it: PyTorch's error names what made it last."""

    @program(tags="in_place", name=f"kept_{name}")
    def changed_later(run: Run) -> None:
        first, model = run.put(nn.Linear(8, 8)), run.put(Three())
        both = nn.ModuleList([first, model])
        optimizer = sgd(both)
        for step in run.steps():
            x, y = batch(run)
            h = first(x)
            out = model(h)
            loss = F.mse_loss(out["head0"], y) + out["head1"].mean()
            if step % 3 == 2:
                change(h if of_argument else out["features"])
            with run.expect_error("the pass"):
                loss.backward()
            if step % 3 == 2:
                optimizer.zero_grad()  # the error comes earlier in a replay than in eager
            see_step(run, loss, both, optimizer, h=h, out=out)

    changed_later.__doc__ = about


add_changed_later("argument_multiplied", "An argument is changed in place", lambda x: x.mul_(2.0), True)
add_changed_later("argument_detached", "detach_() of an argument", lambda x: x.detach_(), True)
add_changed_later("feature_multiplied", "A feature is changed in place", lambda x: x.mul_(2.0), False)
add_changed_later("feature_detached", "detach_() of a feature", lambda x: x.detach_(), False)
