"""Passes whose temporary memory may lie in what their call saved, and passes that leave it to others."""

from typing import Any, Callable

import torch
from common import F, Run, nn, program, see_step, see_tensors, sgd

ONE_PIECE, PIECES, ROOMS = 6, 1 << 12, 1 << 16  # rows of a batch


def lent(work: Callable[[Any], None]) -> Callable[[Any], None]:
    """Once where what a call saves is one piece of memory, and once where a pass gives pieces back in between."""
    for ending, rows in (("", ONE_PIECE), ("_in_parts", PIECES)):
        add(work, ending, rows)
    return work


def add(work: Callable[[Any], None], ending: str, rows: int) -> None:
    def run_it(run: Any) -> None:
        run.rows = rows
        work(run)

    program(tags="kept", name=work.__name__ + ending)(run_it)


def batch(run: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return run.randn(run.rows, 8), run.randn(run.rows, 4)


class Deep(nn.Module):
    """Eight layers, each of which saves several tensors: the first ones' gradients come when most of it is dead."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.into = nn.Linear(8, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(8))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(8))
        self.out = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.into(x)
        for layer, norm in zip(self.layers, self.norms):
            h = h + torch.sigmoid(layer(norm(h))) * h.tanh()
        return self.out(h)


def deep(run: Run, width: int = 32) -> tuple[Deep, torch.optim.Optimizer]:
    model = run.put(Deep(width))
    return model, sgd(model)


def fit_by(run: Run, gradients, width: int = 32) -> None:
    """`gradients(step, loss, parameters)`: has all of them in the parameters' `grad` at the end."""
    model, optimizer = deep(run, width)
    for step in run.steps():
        x, y = batch(run)
        out = model(x)
        loss = F.mse_loss(out, y)
        gradients(step, loss, list(model.parameters()))
        see_step(run, loss, model, optimizer, out=out)


def leave(parameters, found) -> None:
    for parameter, gradient in zip(parameters, found):
        parameter.grad = gradient


@lent
def lent_to_whole_passes(run: Run) -> None:
    fit_by(run, lambda step, loss, parameters: loss.backward())


def lent_to_wide_layers(run: Run) -> None:
    """Gradients are as large as pieces, and lie where these lay."""
    fit_by(run, lambda step, loss, parameters: loss.backward(), 520)


add(lent_to_wide_layers, "", 256)
# Temporary memory is so much that the pass has rooms for it.
add(lent_to_whole_passes, "_with_rooms", ROOMS)


@lent
def lent_to_no_partial_pass(run: Run) -> None:
    """Each step asks for the last layers' gradients alone, and frees their part of the graph; the rest fails or is not asked for."""

    def some(step: int, loss: torch.Tensor, parameters: list[nn.Parameter]) -> None:
        leave(parameters[-6:], torch.autograd.grad(loss, parameters[-6:]))

    fit_by(run, some)


@lent
def lent_until_a_pass_is_partial(run: Run) -> None:
    """Whole passes; from the tenth step on, the first layers' gradients and the last ones' come by two passes."""

    def gradients(step: int, loss: torch.Tensor, parameters: list[nn.Parameter]) -> None:
        if step < 10 or step % 3 != 0:
            loss.backward()
            return
        first, last = parameters[:4], parameters[4:]
        leave(first, torch.autograd.grad(loss, first, retain_graph=True))
        leave(last, torch.autograd.grad(loss, last))

    fit_by(run, gradients)


@lent
def lent_to_the_last_pass_alone(run: Run) -> None:
    """Each graph is kept, and differentiated twice; a third pass over the freed one fails."""

    def gradients(step: int, loss: torch.Tensor, parameters: list[nn.Parameter]) -> None:
        loss.backward(retain_graph=True)
        loss.backward()
        with run.expect_error("again"):
            loss.backward()

    fit_by(run, gradients)


@lent
def lent_and_then_kept(run: Run) -> None:
    """Passes free their graphs; from the tenth step on every other one is kept, and differentiated again."""

    def gradients(step: int, loss: torch.Tensor, parameters: list[nn.Parameter]) -> None:
        kept = step >= 10 and step % 2 == 1
        loss.backward(retain_graph=kept)
        if kept:
            loss.backward()

    fit_by(run, gradients)


@lent
def lent_with_many_in_flight(run: Run) -> None:
    """Three calls before their passes, in turns forwards and backwards; results and inputs are read behind them."""
    model, optimizer = deep(run)
    for step in run.steps():
        batches = [batch(run) for _ in range(3)]
        xs = [x.requires_grad_() for x, _ in batches]
        outs = [model(x) for x in xs]
        losses = [F.mse_loss(out, y) for out, (_, y) in zip(outs, batches)]
        for loss in losses[:: 1 if step % 2 == 0 else -1]:
            loss.backward()
        see_tensors(run, xs=[x.grad for x in xs], outs=outs, read=xs)
        see_step(run, losses[0], model, optimizer)


@lent
def lent_where_gradients_accumulate(run: Run) -> None:
    """Four passes add up their gradients before each step, at the first of which there are none."""
    model, optimizer = deep(run)
    for _ in run.steps():
        for _ in range(3):
            x, y = batch(run)
            (F.mse_loss(model(x), y) / 4).backward()
        x, y = batch(run)
        loss = F.mse_loss(model(x), y) / 4
        loss.backward()
        see_step(run, loss, model, optimizer)


def add_short_memory(most: int) -> None:
    @program(tags="kept memory", name=f"memory_is_short_{most}")
    def short(run: Run) -> None:
        model, optimizer = deep(run)
        total = torch.cuda.get_device_properties(run.device).total_memory
        torch.cuda.set_per_process_memory_fraction((most << 20) / total)
        for step in run.steps():
            try:
                out = model(run.randn(1 << 14, 8))
                loss = out.square().mean()
                loss.backward()
                see_step(run, loss, model, optimizer, out=out)
            except torch.OutOfMemoryError as error:
                run.see(raised=type(error).__name__)
                optimizer.zero_grad()
        torch.cuda.set_per_process_memory_fraction(1.0)

    short.__doc__ = f"The process may have {most} MiB, of which it needs some 90; looking must not cost it an error"


for _most in (100, 110, 120, 130, 140, 150, 160, 180, 200, 240, 280):
    add_short_memory(_most)


class Branches(nn.Module):
    """Two deep nets that share nothing but their input."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = Deep(), Deep()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.one(x), self.other(x)


@lent
def lent_by_neither_branch(run: Run) -> None:
    """One call, two passes, each of which frees the nodes of its own branch and leaves the other one's."""
    model = run.put(Branches())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        outs = model(x)
        losses = [F.mse_loss(out, y) for out in outs]
        for loss in losses[:: 1 if step % 2 == 0 else -1]:
            loss.backward()
        see_step(run, losses[0], model, optimizer, outs=outs)


@lent
def lent_by_a_branch_that_is_dropped(run: Run) -> None:
    """One branch's result is unused, and from the sixth step on dropped before each other pass; tensors lie all around."""
    model = run.put(Branches())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        out, other = model(x)
        if step >= 6 and step % 2 == 1:
            del other
        around = [torch.full((count,), step, device=x.device) for count in (128, 2048, 8192, 16384) * 8]
        del around[::3]
        loss = F.mse_loss(out, y)
        loss.backward()
        see_step(run, loss, model, optimizer, around=around)
