"""What stands around calls: kinds of results, kinds of passes, errors in between, autograd's own functions, other types."""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, Optional

import torch
from common import F, Heads, Run, batch, fit, net, nn, program, see_step, see_tensors, sgd, squares
from torch.utils.checkpoint import checkpoint


class Made(nn.Module):
    """Two layers, and what `how` makes of them and the arguments."""

    def __init__(self, how: Callable[..., Any]) -> None:
        super().__init__()
        self.one, self.two, self.how = nn.Linear(8, 8), nn.Linear(8, 4), how
        self.calls = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.how(self, *args, **kwargs)


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: Optional[torch.Tensor] = None
    number: int = 0


Pair = collections.namedtuple("Pair", "logits hidden")


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        value = list(value.values())
    return [x for part in value for x in tensors_of(part)] if isinstance(value, (list, tuple)) else []


def add_kind(name: str, about: str, how: Callable[..., Any]) -> None:
    @program(tags="kinds", name=f"returns_{name}")
    def kind(run: Run) -> None:
        first, model = run.put(nn.Linear(8, 8)), run.put(Made(how))
        both = nn.ModuleList([first, model])
        optimizer = sgd(both)
        for step in run.steps():
            x, y = batch(run)
            h = first(x)
            out = model(h)
            parts = [part for part in tensors_of(out) if part.is_floating_point()]
            if step % 4 == 3:
                parts = parts[:1]
            loss = sum((part.square().mean() for part in parts), h.square().mean()) + y.mean()
            loss.backward()
            run.see(kind=type(out).__name__, same=[part is h for part in parts], calls=model.calls, text=shape_of(out))
            see_step(run, loss, both, optimizer, parts=parts)

    kind.__doc__ = about


def shape_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{type(value).__name__}{tuple(value.shape)}"
    if isinstance(value, dict):
        return f"{type(value).__name__}({', '.join(f'{key}: {shape_of(x)}' for key, x in value.items())})"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(map(shape_of, value))})"
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}({shape_of(vars(value))})"
    return type(value).__name__ if callable(value) else repr(value)


def by_name(x: torch.Tensor) -> Any:
    return collections.defaultdict(list, x=[x])


def counted(m: Any) -> int:
    m.calls += 1
    return m.calls


def logits(m: Any, h: torch.Tensor) -> torch.Tensor:
    return m.two(m.one(h).tanh())


add_kind("none", "Nothing: the module's result is kept nowhere", lambda m, h: logits(m, h) is None or None)
add_kind("nested", "Dictionaries in lists in tuples", lambda m, h: ({"a": [logits(m, h), {"b": m.one(h)}]}, [None, 3]))
add_kind("dataclass", "A dataclass", lambda m, h: Output(logits(m, h), m.one(h), 2))
add_kind("namedtuple", "A named tuple", lambda m, h: Pair(logits(m, h), (m.one(h), h)))
add_kind("ordered", "An OrderedDict", lambda m, h: collections.OrderedDict(z=logits(m, h), a=by_name(m.one(h))))
add_kind("numbers_that_vary", "Other numbers in each call", lambda m, h: (logits(m, h), counted(m), m.calls * 0.5))
add_kind("scalar", "Tensors without dimensions", lambda m, h: (logits(m, h).mean(), m.one(h).sum()))
add_kind("arguments", "All arguments, and a result", lambda m, h: (h, logits(m, h), h, [h]))
add_kind("parameters", "A parameter, and a view of one", lambda m, h: (logits(m, h), m.one.weight, m.two.weight[0]))
add_kind("parts_in_turns", "Other kinds in turns", lambda m, h: logits(m, h) if counted(m) % 2 else (logits(m, h), m.one(h)))
add_kind("one_of_two", "Other heads in turns", lambda m, h: m.one(h) if counted(m) % 3 == 0 else logits(m, h))
add_kind("function", "A function that still has to be called", lambda m, h: (lambda y: (y, lambda: y * 2))(logits(m, h)))
add_kind("generator", "A generator, whose tensors are made later", lambda m, h: list(logits(m, h) * i for i in range(1, 3)))
add_kind("indices", "Integers beside logits", lambda m, h: (lambda y: (y, y.argmax(1), y.topk(2, 1)))(logits(m, h)))
add_kind("leaf", "A new leaf that requires grad", lambda m, h: (logits(m, h), torch.ones_like(h).detach().requires_grad_()))
add_kind("detached_twin", "A result and its detached twin", lambda m, h: (lambda y: (y, y.detach()))(logits(m, h)))


class Doubled(torch.autograd.Function):
    """Keeps its input and its result, and returns a gradient that both give."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * 2.0
        ctx.save_for_backward(x, y)
        ctx.extra = x.sum()
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        x, y = ctx.saved_tensors
        return grad * 2.0 + 0.01 * (x + y) * ctx.extra.sign()


class Reversed(torch.autograd.Function):
    """Reverses gradients; returns its input as it is."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return -grad


def add_loss(name: str, about: str, loss_of: Callable[..., Any], heads: bool = False) -> None:
    """`loss_of(step, model, x, y)` gives a loss, or a loss and what else is seen."""

    @program(tags="outside", name=name)
    def outside(run: Run) -> None:
        model = run.put(Heads()) if heads else net(run, nn.Linear(8, 8), nn.Tanh())
        optimizer = sgd(model)
        for step in run.steps():
            x, y = batch(run)
            result = loss_of(step, model, x, y)
            loss, more = result if isinstance(result, tuple) else (result, None)
            with run.expect_error("the pass"):
                loss.backward()
            see_step(run, loss, model, optimizer, more=more)

    outside.__doc__ = about


def mse(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(model(x), y)


def custom_loss(step: int, model: Any, x: Any, y: Any) -> Any:
    out = model(x)
    return F.mse_loss(Doubled.apply(out), y) + (Reversed.apply(out).mean() if step % 2 else 0.0), out


def reversed_domain(step: int, model: Any, x: Any, y: Any) -> Any:
    one, other = model(x)
    return F.mse_loss(one, y) + Reversed.apply(other).square().mean()


def ensembles(step: int, model: Any, x: Any, y: Any) -> Any:
    weights = dict(model.named_parameters())
    out = torch.func.functional_call(model, weights, (x,))
    changed = {name: weight * 0.5 for name, weight in weights.items()}
    return F.mse_loss(out, y) + (torch.func.functional_call(model, changed, (x,)).mean() if step % 2 else 0.0), out


def per_sample(step: int, model: Any, x: Any, y: Any) -> Any:
    seen = None
    if step % 3 == 1:
        weights = {name: weight.detach() for name, weight in model.named_parameters()}

        def one(weights: Any, x: Any, y: Any) -> Any:
            return F.mse_loss(torch.func.functional_call(model, weights, (x[None],)), y[None])

        seen = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0, 0))(weights, x, y)["0.weight"]
    return mse(model, x, y), seen


def vmapped_loss(step: int, model: Any, x: Any, y: Any) -> Any:
    out = model(x)
    return torch.func.vmap(lambda a, b: (a - b).square().sum())(out, y).mean(), out


def jacobian(step: int, model: Any, x: Any, y: Any) -> Any:
    seen = torch.autograd.functional.jacobian(lambda x: model(x).sum(0), x[:2]) if step % 4 == 1 else None
    return mse(model, x, y), seen


def checkpointed(reentrant: bool) -> Any:
    def loss(step: int, model: Any, x: Any, y: Any) -> Any:
        h = checkpoint(model[:2], x.requires_grad_(), use_reentrant=reentrant)
        out = checkpoint(model[2], h, use_reentrant=reentrant) if step % 2 else model[2](h)
        return F.mse_loss(model[4](model[3](out)), y), out

    return loss


def several_checkpoints(step: int, model: Any, x: Any, y: Any) -> Any:
    def both(x: Any) -> Any:
        return model(x) + model(x * 0.5)

    return F.mse_loss(checkpoint(both, x, use_reentrant=False) + model(x), y)


add_loss("custom_function_in_the_loss", "Functions with saved tensors behind the call", custom_loss)
add_loss("reversed_gradients", "A gradient reversal on one of two heads", reversed_domain, heads=True)
add_loss("functional_calls", "functional_call with its weights, and with ones that are no leaves", ensembles)
add_loss("gradients_of_each_sample", "vmap of grad of a functional call between steps", per_sample)
add_loss("vmap_in_the_loss", "vmap over the result", vmapped_loss)
add_loss("jacobians", "autograd.functional.jacobian of the model between steps", jacobian)
add_loss("checkpoints_around_parts", "Parts are checkpointed, in turns", checkpointed(False))
add_loss("reentrant_checkpoints_around_parts", "Parts are checkpointed, the old way", checkpointed(True))
add_loss("checkpoint_around_two_calls", "A checkpoint has two calls of a module inside", several_checkpoints)


def add_passes(name: str, about: str, run_pass: Callable[..., Any]) -> None:
    """`run_pass(step, model, h, results, y)` runs passes; what it returns is seen."""

    @program(tags="passes", name=name)
    def passes(run: Run) -> None:
        first, model = run.put(nn.Linear(8, 8)), run.put(Heads())
        both = nn.ModuleList([first, model])
        optimizer = sgd(both)
        for step in run.steps():
            x, y = batch(run)
            h = first(x)
            results = model(h)
            seen = None
            with run.expect_error("the pass"):
                seen = run_pass(step, both, h, results, y)
            run.see(seen=seen)
            see_step(run, results[0].mean(), both, optimizer, h=h, results=results)

    passes.__doc__ = about


def unused(step: int, both: Any, h: Any, results: Any, y: Any) -> Any:
    weights = list(both.parameters())
    how = step % 4
    loss = F.mse_loss(results[how % 2], y)
    if how == 3:
        return torch.autograd.grad(loss, weights)
    return torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=how == 1)


def batched(step: int, both: Any, h: Any, results: Any, y: Any) -> Any:
    loss = F.mse_loss(results[0], y)
    if step % 3 == 2:
        eyes = torch.eye(4, device=y.device)[:, None].expand(4, 6, 4)
        seen = torch.autograd.grad(results[1], h, eyes, is_grads_batched=True, retain_graph=True)
        loss.backward()
        return seen
    return loss.backward()


def inputs_only(step: int, both: Any, h: Any, results: Any, y: Any) -> Any:
    loss = F.mse_loss(results[0], y) + results[1].mean()
    sets = [[h], [both[0].weight], [both[1].body.bias, h], list(both.parameters()), [results[0]]]
    chosen = sets[step % 5]
    for x in chosen:
        if not x.is_leaf:
            x.retain_grad()
    loss.backward(inputs=chosen)


def given_gradients(step: int, both: Any, h: Any, results: Any, y: Any) -> Any:
    kinds = [
        torch.ones(1, 1, device=y.device).expand(6, 4),
        y.t().contiguous().t(),
        torch.cat([y, y], 1)[:, ::2],
        torch.zeros_like(y),
        y.flip(0),
    ]
    results[0].backward(kinds[step % 5], retain_graph=step % 2 == 0)
    if step % 2 == 0:
        results[1].backward(kinds[step // 5])


def wrong_gradients(step: int, both: Any, h: Any, results: Any, y: Any) -> Any:
    if step % 3 == 2:
        kinds = [y[:3], y.double(), y.cpu(), y[None]]
        results[0].backward(kinds[step // 3 % 4])
    F.mse_loss(results[0], y).backward()


def several_passes(step: int, both: Any, h: Any, results: Any, y: Any) -> Any:
    for number in range(1 + step % 4):
        (results[0].mean() + number * results[1].mean()).backward(retain_graph=True)
    results[0].sum().backward()
    if step % 5 == 4:
        results[1].sum().backward()


def gradient_of_results(step: int, both: Any, h: Any, results: Any, y: Any) -> Any:
    seen = torch.autograd.grad(F.mse_loss(results[0], y), [*results, h], allow_unused=True, retain_graph=True)
    torch.autograd.backward([results[0], results[1]], [y, seen[0]])
    return seen


def norms_of_gradients(step: int, both: Any, h: Any, results: Any, y: Any) -> Any:
    """GradNorm: gradients of each task at a shared weight, then a pass."""
    losses = [F.mse_loss(result, y) for result in results]
    norms = [torch.autograd.grad(loss, both[1].body.weight, retain_graph=True)[0].norm() for loss in losses]
    total = sum(loss / norm for loss, norm in zip(losses, norms))
    total.backward()
    return norms


add_passes("unused_gradients", "autograd.grad with allow_unused and materialize_grads, and without", unused)
add_passes("batched_gradients", "is_grads_batched in each third step", batched)
add_passes("inputs_of_passes", "backward(inputs=...) of arguments, weights and results", inputs_only)
add_passes("given_gradients", "Expanded, transposed, strided gradients are handed in", given_gradients)
add_passes("wrong_gradients", "Gradients of other shapes, types and devices are errors, then it goes on", wrong_gradients)
add_passes("several_passes", "The graph is kept for a changing number of passes", several_passes)
add_passes("gradients_of_results", "Gradients of results themselves, then backward of several tensors", gradient_of_results)
add_passes("norms_of_gradients", "Norms of two tasks' gradients weight the losses", norms_of_gradients)


@program(tags="types")
def doubles(run: Run) -> None:
    """All is float64."""
    model = net(run).double()
    fit(run, model, make=lambda run: tuple(x.double() for x in batch(run)))


@program(tags="types")
def halves(run: Run) -> None:
    """All is bfloat16."""
    model = net(run).bfloat16()
    fit(run, model, make=lambda run: tuple(x.bfloat16() for x in batch(run)))


@program(tags="types", gpu_only="complex products are not simulated")
def complex_numbers(run: Run) -> None:
    """Complex weights and results; the loss is real."""

    class Wave(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.complex(torch.randn(8, 4), torch.randn(8, 4)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.to(self.weight.dtype) @ self.weight).conj() * self.weight.sum()

    model = run.put(Wave())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for _ in run.steps():
        x, y = batch(run)
        out = model(x)
        loss = F.mse_loss(torch.view_as_real(out.resolve_conj()).sum(-1), y)
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="types")
def default_types(run: Run) -> None:
    """The default dtype and matmul's precision change between steps."""
    model = net(run)

    def before(step: int) -> None:
        torch.set_default_dtype(torch.float64 if step % 3 == 2 else torch.float32)
        torch.set_float32_matmul_precision("high" if step % 5 == 4 else "highest")

    try:
        fit(run, model, before=before, make=lambda run: tuple(x.float() for x in batch(run)))
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")


@program(tags="outside")
def arguments_of_other_kinds(run: Run) -> None:
    """Keyword arguments, None, tuples, numbers that vary; arguments that require grad in turns, leaves or not."""

    def forward(m: Any, x: Any, other: Any = None, scale: float = 1.0, pair: Any = ()) -> Any:
        h = m.one(x).tanh() * scale
        for part in pair:
            h = h + part
        return m.two(h if other is None else h + other)

    model = run.put(Made(forward))
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        leaf = x.clone().requires_grad_()
        kinds: list[dict[str, Any]] = [{}, {"other": leaf}, {"other": leaf * 2, "pair": (leaf, x)}, {"scale": 0.5}]
        kinds.append({"other": x, "scale": 2})
        out = model(leaf if step % 2 else x, **kinds[step % 5])
        loss = F.mse_loss(out, y)
        loss.backward()
        see_step(run, loss, model, optimizer, out=out, leaf=leaf)


@program(tags="outside")
def adversarial_examples(run: Run) -> None:
    """PGD: passes for the input alone, weights' gradients are thrown away; then a step with the changed input."""
    model = net(run)
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        for number in range(step % 3):
            x = x.detach().requires_grad_()
            grad = torch.autograd.grad(mse(model, x, y), x)[0] if number else None
            if grad is None:
                mse(model, x, y).backward()
                grad = x.grad
            x = x.detach() + 0.01 * grad.sign()
        optimizer.zero_grad()
        loss = mse(model, x, y)
        loss.backward()
        see_step(run, loss, model, optimizer, x=x)


@program(tags="outside")
def sharpness_aware(run: Run) -> None:
    """SAM: weights are moved by their gradients between two passes, and put back."""
    model = net(run)
    optimizer = sgd(model)
    for _ in run.steps():
        x, y = batch(run)
        mse(model, x, y).backward()
        with torch.no_grad():
            moved = [0.05 * weight.grad for weight in model.parameters()]
            for weight, by in zip(model.parameters(), moved):
                weight.add_(by)
        optimizer.zero_grad()
        loss = mse(model, x, y)
        loss.backward()
        with torch.no_grad():
            for weight, by in zip(model.parameters(), moved):
                weight.sub_(by)
        see_step(run, loss, model, optimizer)


@program(tags="outside")
def inner_called_from_outside(run: Run) -> None:
    """Parts of a module are called directly before, between and after calls of the whole, with its results."""
    model = net(run, nn.Linear(8, 8), nn.Tanh())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        h = model[0](x) if step % 2 else x
        out = model(h)
        loss = F.mse_loss(out, y) + (model[4](model[2](h)).mean() if step % 3 else 0.0)
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)
