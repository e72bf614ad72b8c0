"""Arguments and results: views, arguments that are returned, what is kept beside the results, hooks, how long all of it lives."""

import gc
import weakref
from typing import Any, Callable

import torch
from common import F, Run, batch, fit, net, nn, program, see_step, see_tensors, squares


class Wrapped(nn.Module):
    """A layer, and what `forward` makes of its result."""

    def __init__(self, forward: Callable[..., Any], out: int = 8) -> None:
        super().__init__()
        self.layer, self.how = nn.Linear(8, out), forward

    def forward(self, x: torch.Tensor) -> Any:
        return self.how(self, x)


def add_results(name: str, about: str, forward: Callable[[Any, torch.Tensor], Any]) -> None:
    """All results are used, and so is the argument, which requires grad and is no leaf."""

    @program(tags="results", name=name)
    def results(run: Run) -> None:
        first, model, last = run.put(nn.Linear(8, 8)), run.put(Wrapped(forward)), run.put(nn.Linear(8, 4))
        every = nn.ModuleList([first, model, last])
        optimizer = torch.optim.SGD(every.parameters(), lr=0.05)
        for _ in run.steps():
            x, y = batch(run)
            h = first(x)
            found = model(h)
            found = found if isinstance(found, tuple) else (found,)
            mixed = sum(part.reshape(6, -1).sum(1, keepdim=True) for part in found)
            loss = F.mse_loss(last(h + mixed), y)
            loss.backward()
            run.see(same=[part is h for part in found], shares=[shares(part, h) for part in found])
            run.see(pairs=[[a is b, shares(a, b)] for a in found for b in found])
            see_step(run, loss, every, optimizer, h=h, **{f"result {i}": part for i, part in enumerate(found)})

    results.__doc__ = about


def shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


add_results("argument_that_requires_grad", "The argument is no leaf", lambda m, x: m.layer(x).tanh())
add_results("view_of_the_argument", "A result is a view of the argument", lambda m, x: (m.layer(x), x[:, 2:6]))
add_results("only_a_view", "The module returns a view of its argument and nothing else", lambda m, x: x.t())
add_results("returned_argument", "A result is the argument itself", lambda m, x: (x, m.layer(x)))
add_results("only_its_argument", "The module returns its argument", lambda m, x: x)
add_results("two_views", "Two results are views of one base", lambda m, x: m.layer(x).chunk(2, 1))
add_results("base_and_view", "A result, and a view of it", lambda m, x: (lambda y: (y, y[:3]))(m.layer(x)))
add_results("same_result_twice", "One object is in two places", lambda m, x: (lambda y: (y, y))(m.layer(x)))
add_results("features_and_logits", "A result is used inside, too", lambda m, x: (lambda y: (y, y.relu()))(m.layer(x).tanh()))
add_results("detached_result", "A result that requires no grad", lambda m, x: (m.layer(x), m.layer(x).detach()))
add_results("result_of_no_graph", "A result of no_grad beside another", lambda m, x: (m.layer(x), quiet(m, x)))
add_results("changed_argument", "The argument, no leaf, is changed in place", lambda m, x: (m.layer(x * 1.0), x.mul_(2.0)))
add_results("changed_view", "A view of a result is changed in place inside", lambda m, x: changed_view(m.layer(x)))


def quiet(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.layer(x)


def changed_view(y: torch.Tensor) -> torch.Tensor:
    y = y * 1.0
    y[:, 1:3].mul_(3.0)
    return y


def auxiliary(model: Any, x: torch.Tensor) -> torch.Tensor:
    h = model.layer(x)
    model.auxiliary = h.square().mean()
    return h.tanh()


@program(tags="kept")
def auxiliary_loss(run: Run) -> None:
    """A loss that the module keeps as an attribute is added from outside."""
    first, model = run.put(nn.Linear(8, 8)), run.put(Wrapped(auxiliary, 4))
    both = nn.ModuleList([first, model])
    optimizer = torch.optim.SGD(both.parameters(), lr=0.05)
    for step in run.steps():
        x, y = batch(run)
        out = model(first(x))
        loss = F.mse_loss(out, y) + (0.1 * model.auxiliary if step % 3 else 0.0)
        loss.backward()
        see_step(run, loss, both, optimizer, out=out, auxiliary=model.auxiliary)


@program(tags="kept")
def activations_kept(run: Run) -> None:
    """A forward hook keeps activations, of which a loss is made, in each second step."""
    model, kept = net(run, nn.Linear(8, 8)), {}
    model[1].register_forward_hook(lambda module, given, out: kept.update(features=out))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        loss, out = squares(model, *batch(run))
        total = loss + 0.01 * kept["features"].square().sum() if step % 2 else loss
        total.backward()
        see_step(run, total, model, optimizer, features=kept["features"], out=out)


@program(tags="kept")
def weight_used_outside(run: Run) -> None:
    """A weight of the module stands in the loss, too, as a penalty and through a product."""
    model = net(run)

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        out = model(x)
        return F.mse_loss(out, y) + 0.01 * model[0].weight.square().sum() + (x @ model[0].weight.t()).mean(), out

    fit(run, model, torch.optim.Adam(model.parameters(), lr=0.01), loss)


@program(tags="kept")
def attribute_with_a_graph(run: Run) -> None:
    """The module reads an attribute that is no leaf: a weight that is made outside of it."""
    model, made = run.put(Wrapped(lambda m, x: F.linear(m.layer(x), m.scale))), run.put(nn.Linear(8, 4))
    both = nn.ModuleList([model, made])
    optimizer = torch.optim.SGD(both.parameters(), lr=0.05)
    for _ in run.steps():
        x, y = batch(run)
        model.scale = made.weight / made.weight.norm()
        out = model(x)
        loss = F.mse_loss(out + made.bias, y)
        loss.backward()
        see_step(run, loss, both, optimizer, out=out, scale=model.scale)


@program(tags="kept")
def attributes_on_results(run: Run) -> None:
    """The module sets an attribute on its result."""

    def marked(model: Any, x: torch.Tensor) -> torch.Tensor:
        out = model.layer(x)
        out.origin = "layer"
        return out

    fit(run, run.put(Wrapped(marked, 4)))


class Held:
    """It stands in a node's metadata, and dies with the node."""


@program(tags="life")
def lives_as_long(run: Run) -> None:
    """Arguments, results and losses die when the program lets go of them, before the backward pass or after it."""
    first, model = run.put(nn.Linear(8, 8)), net(run)
    both = nn.ModuleList([first, model])
    optimizer = torch.optim.SGD(both.parameters(), lr=0.05)
    for step in run.steps():
        x, y = batch(run)
        h = first(x)
        out = model(h)
        loss = F.mse_loss(out, y)
        alive = {name: weakref.ref(value) for name, value in {"x": x, "h": h, "out": out, "loss": loss}.items()}
        held = Held()
        out.grad_fn.metadata["held"], node = held, weakref.ref(held)
        del held
        del x, h, out
        if step % 4 == 3:
            gc.collect()
        run.see(before=[name for name, ref in alive.items() if ref() is not None])
        loss.backward()
        run.see(after=[name for name, ref in alive.items() if ref() is not None], node=node() is None)
        see_step(run, loss, both, optimizer)
        del loss
        run.see(end=[name for name, ref in alive.items() if ref() is not None], node_at_the_end=node() is None)


def add_hooked(name: str, about: str, install: Callable[..., None]) -> None:
    @program(tags="hooks", name=name)
    def hooked(run: Run) -> None:
        first, model = run.put(nn.Linear(8, 8)), net(run)
        both, order = nn.ModuleList([first, model]), []
        optimizer = torch.optim.SGD(both.parameters(), lr=0.05)
        for step in run.steps():
            x, y = batch(run)
            h = first(x)

            def note(label: str) -> Callable[..., None]:
                return lambda *grads: order.append(f"{label} {sum(float(g.sum()) for g in grads if torch.is_tensor(g))!r}")

            def before(label: str, h: torch.Tensor = h, step: int = step) -> None:
                install(step, note, h=h, out=None, model=model)

            before("argument")
            out = model(h)
            install(step, note, h=None, out=out, model=model)
            loss = F.mse_loss(out, y)
            loss.backward()
            run.see(order=list(order))
            order.clear()
            see_step(run, loss, both, optimizer, h=h, out=out)

    hooked.__doc__ = about


def on_result(step: int, note: Any, h: Any, out: Any, model: Any) -> None:
    if out is not None:
        out.register_hook(note("result"))
        out.register_hook(lambda grad: grad * 0.5)


def on_argument(step: int, note: Any, h: Any, out: Any, model: Any) -> None:
    if h is not None:
        h.register_hook(note("argument"))


def on_parameters(step: int, note: Any, h: Any, out: Any, model: Any) -> None:
    if step == 0 and out is not None:
        for name, parameter in model.named_parameters():
            parameter.register_hook(note(f"gradient of {name}"))
            parameter.register_post_accumulate_grad_hook(note(f"accumulated {name}"))


def on_nodes(step: int, note: Any, h: Any, out: Any, model: Any) -> None:
    if out is not None:
        out.grad_fn.register_hook(lambda into, of: note("behind the node")(*into))
        out.grad_fn.register_prehook(lambda grads: note("before the node")(*grads))


def on_modules(step: int, note: Any, h: Any, out: Any, model: Any) -> None:
    if step == 0 and out is not None:
        model[0].register_full_backward_hook(lambda module, into, of: note("first")(*of))
        model.register_full_backward_hook(lambda module, into, of: note("all")(*into, *of))


def retain(step: int, note: Any, h: Any, out: Any, model: Any) -> None:
    (h if out is None else out).retain_grad()


add_hooked("hook_on_result", "Two hooks on a result, of which one changes the gradient", on_result)
add_hooked("hook_on_argument", "A hook on an argument", on_argument)
add_hooked("hooks_on_parameters", "Hooks on parameters, before and after a gradient is added", on_parameters)
add_hooked("hooks_on_nodes", "Hooks on the backward node of a result", on_nodes)
add_hooked("hooks_on_modules", "Full backward hooks on modules", on_modules)
add_hooked("retained_gradients", "Argument and result retain their gradients", retain)


class Stop(Exception):
    pass


def add_raising(name: str, error: Callable[[], BaseException]) -> None:
    @program(tags="errors", name=f"hook_raises_{name}")
    def raising(run: Run) -> None:
        model, now = net(run), {"step": 0}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def fail(grad: torch.Tensor) -> None:
            if now["step"] % 5 == 4:
                raise error()

        model[0].bias.register_hook(fail)
        for step in run.steps():
            now["step"] = step
            loss, out = squares(model, *batch(run))
            try:
                loss.backward()
            except BaseException as raised:  # noqa: BLE001: KeyboardInterrupt, too
                run.see(raised=raised, model=model)
                optimizer.zero_grad()
                continue
            see_step(run, loss, model, optimizer, out=out)

    raising.__doc__ = f"A hook raises {name} in the backward pass of each fifth step; the next step is right"


add_raising("an_error", lambda: Stop("enough"))
add_raising("an_interrupt", KeyboardInterrupt)
add_raising("out_of_memory", lambda: torch.OutOfMemoryError("CUDA out of memory"))
