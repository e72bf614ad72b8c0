"""Autocast's table of casts: who uses a cast, in which order gradients reach its weight, and when it is made."""

from typing import Any

import torch
from common import NO_GRADIENTS, F, Run, autocast, batch, fit, net, nn, program, see_step, see_tensors


class Tied(nn.Module):
    """A table that is looked up as it is, and is cast as the last layer's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(12, 8)
        self.middle = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.last = nn.Linear(8, 12, bias=False)
        self.last.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(torch.tanh(self.middle(self.table(ids)))))


@program(tags="autocast")
def casts_tied(run: Run) -> None:
    """A weight is used as it is, as a cast in the call, as a cast behind it, and as it is behind it."""
    model = run.put(Tied())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in run.steps():
        ids = run.randint(12, 6)
        with autocast():
            out = model(ids)
            loss = F.cross_entropy(out.float(), ids) + out.float().square().mean()
            if step % 3 != 1:
                loss = loss + F.linear(run.randn(4, 8), model.table.weight).float().square().mean()
        if step % 3 != 2:
            loss = loss + model.table.weight.square().mean()
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="autocast hooks")
def casts_and_hooks(run: Run) -> None:
    """In which order gradients are added to the parameters, those that are cast and those that are not."""
    model = net(run, nn.LayerNorm(8), nn.Linear(8, 8, bias=False), nn.LayerNorm(8))
    order: list[str] = []
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: order.append(name))
        parameter.register_hook(lambda grad, name=name: order.append(f"{name} {grad.dtype}"))

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        with autocast():
            out = model(x)
            return F.mse_loss(out.float(), y), out

    fit(run, model, loss_of=loss, after=lambda _: (run.see(order=list(order)), order.clear()))


@program(tags="autocast", gpu_only=NO_GRADIENTS)
def casts_of_a_block_without_gradients(run: Run) -> None:
    """The same weights are cast without gradients first, in inference mode, or by their target's copy."""
    model, target = net(run), net(run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        x, y = batch(run)
        with autocast():
            if step % 4 == 1:
                with torch.no_grad():
                    run.see(quiet=model(x))
            if step % 4 == 2:
                with torch.inference_mode():
                    run.see(still=model(x).sum().item())
            with torch.no_grad():
                wanted = target(x)
            out = model(x)
            loss = F.mse_loss(out.float(), y) + F.mse_loss(out, wanted)
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


class Shared(nn.Module):
    """Two parts that share a weight: the second one finds the cast of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.second = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Tanh(), nn.Linear(8, 4))
        self.second[0].weight = self.first[0].weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        run_as_always = x.sum().item()  # so that the parts are looked at
        return self.second(self.first(x)) + 0.0 * run_as_always


@program(tags="autocast")
def casts_that_are_found(run: Run) -> None:
    """Of two parts the second one finds the cast; passes that nobody foresaw, over both of them, and twice."""
    model = run.put(Shared())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        x, y = batch(run)
        with autocast():
            out = model(x)
            loss = F.mse_loss(out.float(), y)
        if step >= 14:
            weights = [model.first[0].weight, model.second[2].bias]
            grads = torch.autograd.grad(loss, weights, create_graph=step == 15, retain_graph=True)
            see_tensors(run, **{f"grad{i}": grad for i, grad in enumerate(grads)})
            if step == 15:
                loss = loss + sum(grad.square().sum() for grad in grads)
        loss.backward(retain_graph=step == 17)
        if step == 17:
            loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="autocast")
def casts_that_others_lead_to(run: Run) -> None:
    """Passes that have the casts' nodes inside, and passes in which code behind the call, or only some weights, use them."""
    model = net(run, nn.LayerNorm(8), nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        x, y = batch(run)
        with autocast():
            out = model(x)
            loss = F.mse_loss(out.float(), y)
            if step in (9, 13, 17):
                loss = loss + F.linear(x, model[0].weight, model[0].bias).float().square().mean()
        if step in (11, 15):
            some = torch.autograd.grad(loss, [model[0].weight, model[4].bias], retain_graph=True)
            see_tensors(run, **{f"grad{i}": grad for i, grad in enumerate(some)})
        loss.backward(retain_graph=step == 14)
        if step == 14:
            loss.backward()
        if step == 12:
            model[3].weight.requires_grad_(False)
        see_step(run, loss, model, optimizer, out=out)


@program(tags="autocast")
def casts_made_by_hand(run: Run) -> None:
    """The module casts its weight itself, in addition to autocast, and keeps what it cast."""

    class Hand(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            half = self.weight.to(torch.bfloat16)
            return super().forward(x) + F.linear(x, half) + F.linear(x, half).square()

    model = net(run, Hand(8, 8))

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        with autocast():
            out = model(x)
            return F.mse_loss(out.float(), y) + F.linear(x, model[2].weight).float().mean(), out

    fit(run, model, loss_of=loss)


@program(tags="autocast")
def casts_of_a_global(run: Run) -> None:
    """The call casts a weight that is not its module's, and so does the code behind it."""
    outside = nn.Parameter(run.randn(8, 8))

    class Reads(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, outside)

    model = net(run, Reads(), nn.Tanh(), Reads())
    optimizer = torch.optim.SGD([*model.parameters(), outside], lr=0.05)
    for _ in run.steps():
        x, y = batch(run)
        with autocast():
            out = model(x)
            loss = F.mse_loss(out.float(), y) + F.linear(x, outside).float().square().mean()
        loss.backward()
        run.see(outside=outside, outside_grad=outside.grad)
        see_step(run, loss, model, optimizer, out=out)


@program(tags="autocast")
def casts_outlive_their_weights(run: Run) -> None:
    """Weights are written to, and replaced, between the forward pass and its backward pass: the cast was made before."""
    model = net(run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        x, y = batch(run)
        with autocast():
            out = model(x)
            loss = F.mse_loss(out.float(), y)
        with torch.no_grad():
            if step % 3 == 1:
                model[0].weight.mul_(0.5)
            if step % 5 == 4:
                model[2].bias.data = model[2].bias.data * 0.5
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="autocast")
def casts_of_changing_blocks(run: Run) -> None:
    """Blocks within blocks, of other types, a weight that is frozen for some steps, and two batches in one block."""
    model = net(run)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in run.steps():
        model[2].weight.requires_grad_(step % 6 != 5)
        (x, y), (other, target) = batch(run), batch(run)
        dtype = torch.float16 if step % 4 == 3 else torch.bfloat16
        with autocast(dtype):
            with autocast(dtype):
                loss = F.mse_loss(model(x).float(), y)
            loss.backward(retain_graph=True)
            out = model(other)
            more = F.mse_loss(out.float(), target)
            with torch.autocast("cuda", enabled=False):
                plain = model(x)
        (more + plain.mean()).backward()
        see_step(run, loss, model, optimizer, out=out, plain=plain)


@program(tags="autocast checkpoint")
def casts_under_checkpoints(run: Run) -> None:
    """Parts are computed again in the backward pass, behind the block's end: their casts are made anew."""
    from torch.utils.checkpoint import checkpoint

    model = net(run, nn.Linear(8, 8), nn.Tanh())
    part = run.put(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.3)))
    optimizer = torch.optim.AdamW([*model.parameters(), *part.parameters()], lr=0.01)
    for step in run.steps():
        x, y = batch(run)
        with autocast():
            inner = checkpoint(part, x, use_reentrant=False) if step % 2 else part(x)
            out = model(inner.float())
            loss = F.mse_loss(out.float(), y)
        loss.backward()
        run.see(part=part)
        see_step(run, loss, model, optimizer, out=out)


@program(tags="autocast")
def casts_of_models_in_turns(run: Run) -> None:
    """Two models whose calls and backward passes cross, in one block, with gradients that are added up over two steps."""
    one, other = net(run), net(run)
    optimizer = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=0.05)
    for step in run.steps():
        x, y = batch(run)
        with autocast():
            first, second = one(x), other(x)
            third = one(second.float().repeat(1, 2))
            losses = [F.mse_loss(out.float(), y) for out in (first, second, third)]
        for loss in losses if step % 2 else reversed(losses):
            loss.backward(retain_graph=True)
        see_tensors(run, first=first, second=second, third=third)
        run.see(one=one, other=other)
        if step % 2:
            optimizer.step()
            optimizer.zero_grad(set_to_none=step % 4 == 1)
        run.see(weights=[one, other])
