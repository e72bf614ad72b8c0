"""Leaves that a call makes for itself, and draws that decide which parts of a call run."""

import weakref
from typing import Any, Callable

import torch
from common import F, Run, autocast, batch, fit, nn, program, see_step, see_tensors

LEAVES: list[Any] = []


class Encoder(nn.Module):
    """As speech encoders do for checkpointing: a view of the batch that requires grad. Nobody asks for that gradient."""

    def __init__(self, keep: Callable[[torch.Tensor], Any] = lambda _: None, detached: bool = False) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4)
        self.keep, self.detached = keep, detached

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.detach() if self.detached else x[:, None]
        h.requires_grad = True
        self.keep(h)
        y = self.last(self.norm(torch.tanh(self.first(h)) * h))
        return torch.tanh(y if self.detached else y[:, 0])



@program()
def leaf_made_inside(run: Run) -> None:
    fit(run, run.put(Encoder()))


@program()
def leaf_made_inside_with_memory(run: Run) -> None:
    """The leaf is a copy; what is computed of it, nobody saves, or somebody does."""

    class Copying(Encoder):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            shift = torch.zeros_like(x).requires_grad_()
            return super().forward((x + shift).clone() * shift.exp())

    class Shifting(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + torch.ones(4, device=x.device).requires_grad_()

    fit(run, run.put(Copying(detached=True)))
    fit(run, run.put(Shifting(8, 4)))


@program(tags="autocast")
def leaf_made_inside_and_cast(run: Run) -> None:
    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        with autocast():
            out = model(x)
            return F.mse_loss(out.float(), y), out

    fit(run, run.put(Encoder()), loss_of=loss)
    fit(run, run.put(Encoder(detached=True)), loss_of=loss)


@program()
def leaf_made_inside_and_kept(run: Run) -> None:
    """Somebody asks for its gradient after all."""

    def see(_: int) -> None:
        see_tensors(run, **{f"leaf{i}": leaf.grad for i, leaf in enumerate(LEAVES)})
        LEAVES.clear()

    for detached in (False, True):
        fit(run, run.put(Encoder(LEAVES.append, detached)), after=see)


@program()
def leaf_made_inside_and_weakly_kept(run: Run) -> None:
    def see(_: int) -> None:
        run.see(alive=[leaf() is not None for leaf in LEAVES])
        LEAVES.clear()

    fit(run, run.put(Encoder(lambda leaf: LEAVES.append(weakref.ref(leaf)))), after=see)


@program(tags="hooks")
def leaf_made_inside_with_a_hook(run: Run) -> None:
    """On the leaf, and where its gradient is added up."""

    def hooked(leaf: torch.Tensor) -> None:
        leaf.register_hook(lambda grad: LEAVES.append(grad.sum().item()))

    def hooked_behind(leaf: torch.Tensor) -> None:
        leaf.register_post_accumulate_grad_hook(lambda leaf: LEAVES.append(leaf.grad.sum().item()))

    for keep in (hooked, hooked_behind):
        fit(run, run.put(Encoder(keep)), after=lambda _: (run.see(gradients=list(LEAVES)), LEAVES.clear()))


@program()
def leaf_made_inside_and_other_passes(run: Run) -> None:
    """Passes that nobody foresaw: twice, for some weights, differentiated; and an argument that changes before its pass."""
    model = run.put(Encoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        x, y = batch(run)
        out = model(x)
        loss = F.mse_loss(out, y)
        if step in (10, 12, 14):
            weights = [model.first.weight, model.last.bias]
            grads = torch.autograd.grad(loss, weights, retain_graph=True, create_graph=step == 12)
            see_tensors(run, **{f"grad{i}": grad for i, grad in enumerate(grads)})
            if step == 12:
                loss = loss + sum(grad.square().sum() for grad in grads)
        if step in (11, 13):
            loss.backward(retain_graph=True)
        if step == 15:
            x.mul_(2)
        try:
            loss.backward()
        except RuntimeError as error:
            run.see(error=str(error))
        see_step(run, loss, model, optimizer, out=out)


@program()
def leaf_of_an_argument(run: Run) -> None:
    """The argument is a leaf in some steps; in others what is made of it inside is one."""

    class Either(Encoder):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if not x.requires_grad else torch.tanh(self.last(self.norm(self.first(x) * x)))

    def make(run: Run) -> tuple[Any, ...]:
        x, y = batch(run)
        return x.requires_grad_(run.step % 3 == 1), y

    run.step = 0
    fit(run, run.put(Either()), make=make, before=lambda step: setattr(run, "step", step))


class Dropping(nn.Module):
    """Layer drop: a number of the host decides which parts run."""

    def __init__(self, share: float) -> None:
        super().__init__()
        parts = [nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(0.1), nn.Tanh()) for _ in range(3)]
        self.parts, self.last, self.share = nn.ModuleList(parts), nn.Linear(8, 4), share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            number = torch.rand([])
            dropped = self.training and number < self.share
            if not dropped:
                x = x + part(x)
        return self.last(x)


@program(tags="autocast")
def layers_dropped(run: Run) -> None:
    """Each size of a batch is another signature; the random numbers of the host and of the device go on as they do."""
    sizes = (6, 4, 8, 6)

    def make(run: Run) -> tuple[Any, ...]:
        size = sizes[int(torch.randint(len(sizes), ()))]
        return run.randn(size, 8), run.randn(size, 4)

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        with autocast():
            out = model(x)
            return F.mse_loss(out.float(), y), out

    for share in (0.0, 0.3):
        fit(run, run.put(Dropping(share)), loss_of=loss, make=make, after=lambda _: run.see(drawn=torch.rand(2)))
