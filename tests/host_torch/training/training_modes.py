"""Modes of autograd and autocast, checkpoints, scaled gradients, and what is run as always."""

from typing import Any

import torch
from common import NO_GRADIENTS, F, Run, autocast, batch, fit, net, nn, only_from, program, see_step, see_tensors, squares
from torch.utils.checkpoint import checkpoint


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.2)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.last(x)


def add_checkpoint(reentrant: bool) -> None:
    @program(tags="checkpoint", name=f"checkpoint_{'reentrant' if reentrant else 'plain'}")
    def checkpointed(run: Run) -> None:
        fit(run, run.put(Checkpointed(reentrant)))

    checkpointed.__doc__ = f"Checkpointed blocks with dropout, use_reentrant={reentrant}"


add_checkpoint(False)
add_checkpoint(True)


@program(tags="checkpoint")
def whole_module_checkpointed(run: Run) -> None:
    """The checkpoint is around the whole module: its forward runs in the backward pass, gradients on."""
    model = net(run, nn.Dropout(0.2))

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        out = checkpoint(model, x, use_reentrant=False)
        return F.mse_loss(out, y), out

    fit(run, model, loss_of=loss)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(8, 24), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (part.view(2, 3, 2, 4).transpose(1, 2) for part in self.into(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=0.2, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(6, 8))


@program(tags="random")
def attention_with_dropout(run: Run) -> None:
    """Attention with dropout; random numbers are drawn between the forward and the backward pass, too."""
    model = run.put(Attention())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in run.steps():
        loss, out = squares(model, *batch(run))
        noise = torch.randn(4, device=run.device)
        loss.backward()
        see_step(run, loss, model, optimizer, out=out, noise=noise, after=torch.rand(4, device=run.device))


@program(tags="autocast")
def autocast_shared_casts(run: Run) -> None:
    """One model twice in one autocast block, and a weight outside of it: all share the cast."""
    model = net(run)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in run.steps():
        x, y = batch(run)
        with autocast():
            one, other = model(x), model(x * 0.5)
            third = F.linear(x, model[0].weight)
            loss = F.mse_loss(one.float() + other.float(), y) + third.float().square().mean()
        loss.backward()
        see_step(run, loss, model, optimizer, one=one, other=other, third=third)


@program(tags="autocast")
def autocast_without_cache(run: Run) -> None:
    """Without a cache of casts; and a part inside that is not cast."""

    class Part(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", enabled=False):
                return super().forward(x.float())

    model = net(run, Part(8, 8))

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        with autocast(cache_enabled=False):
            out = model(x)
            return F.mse_loss(out.float(), y), out

    fit(run, model, loss_of=loss)


@program(tags="autocast")
def autocast_used_again(run: Run) -> None:
    """A weight's cast is used twice in one block, by a module and by the code around it: gradients add up in bfloat16."""
    model = run.put(nn.Sequential(nn.Linear(8, 16, bias=False), nn.Tanh(), nn.Linear(16, 4, bias=False)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        (x, y), (other, _) = batch(run), batch(run)
        with autocast():
            out = model(x)
            second = model(other) if step > 8 else out
            direct = F.linear(other, model[0].weight) if step > 12 else out
            loss = F.mse_loss(out.float(), y) + second.float().mean() + direct.float().square().mean()
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="autocast", gpu_only=NO_GRADIENTS)
def autocast_cast_before(run: Run) -> None:
    """Weights are cast in the block before the model is called: with gradients, and without."""
    model = net(run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        x, y = batch(run)
        with autocast():
            if step % 2:
                with torch.no_grad():
                    run.see(quiet=model(x))
            else:
                run.see(before=F.linear(x, model[0].weight))
            out = model(x)
            loss = F.mse_loss(out.float(), y)
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="autocast")
def autocast_step_inside(run: Run) -> None:
    """The optimizer steps inside of the block, and the model is called again with casts that are of old weights."""
    model = net(run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in run.steps():
        x, y = batch(run)
        with autocast():
            loss = F.mse_loss(model(x).float(), y)
            loss.backward()
            see_step(run, loss, model, optimizer)
            run.see(again=model(x))


@program(tags="scaler")
def scaled_with_nan(run: Run) -> None:
    """GradScaler skips steps with infinite gradients, and halves its scale."""
    model = net(run)
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=0.01), torch.amp.GradScaler("cuda", init_scale=256.0)
    for step in run.steps():
        x, y = batch(run)
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x * (float("inf") if step % 6 == 5 else 1.0))
            loss = F.mse_loss(out.float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        see_tensors(run, loss=loss, out=out, norm=norm, model=model)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        run.see(scale=scaler.get_scale(), weights=model, optimizer=optimizer)


@program(tags="eager")
def batch_norm_of_other_modes(run: Run) -> None:
    """Batch norm whose statistics are frozen, and used, and reset."""
    model = net(run, nn.BatchNorm1d(8), nn.Linear(8, 8), nn.BatchNorm1d(8, track_running_stats=False))

    def change(step: int) -> None:
        model[2].train(step % 8 < 5)
        if step == 12:
            model[2].reset_running_stats()

    fit(run, model, before=change)


@program(tags="eager")
def anomaly_mode(run: Run) -> None:
    """Anomaly mode in some of the steps."""
    model = net(run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        with torch.autograd.set_detect_anomaly(step % 7 == 6):
            loss, out = squares(model, *batch(run))
            if step % 14 == 13:
                loss = loss + (out * 0.0 - 1.0).sqrt().sum()
            with run.expect_error("anomaly"):
                loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="eager")
def saved_tensors_hooked(run: Run) -> None:
    """Hooks on saved tensors from the eighth step on; what they get, in order."""
    model, packed = net(run), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def pack(x: torch.Tensor) -> torch.Tensor:
        packed.append(f"pack {tuple(x.shape)}")
        return x.detach() * 1.0

    def unpack(x: torch.Tensor) -> torch.Tensor:
        packed.append(f"unpack {tuple(x.shape)}")
        return x

    for step in run.steps():
        if step >= 8:
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                loss, out = squares(model, *batch(run))
        else:
            loss, out = squares(model, *batch(run))
        loss.backward()
        run.see(packed=list(packed))
        packed.clear()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="eager", gpu_only=only_from(11, "its operators are not simulated under a capture"))
def captured_step(run: Run) -> None:
    """Ordinary steps, then a CUDA graph of forward, backward and optimizer that the program captures; both in turn."""
    model = net(run)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, capturable=True)
    x, y = batch(run)

    def whole_step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss, _ = squares(model, x, y)
        loss.backward()
        optimizer.step()
        return loss

    graph, captured = torch.cuda.CUDAGraph(), None
    for step in run.steps():
        x.copy_(run.randn(6, 8))
        if step == 10:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                whole_step()
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph):
                captured = whole_step()
        if captured is not None and step % 2 == 0:
            graph.replay()
            see_tensors(run, captured=captured)
        elif captured is None:
            see_tensors(run, loss=whole_step())
        else:
            see_tensors(run, evaluated=squares(model, x, y)[0])
        run.see(weights=model, optimizer=optimizer)


@program(tags="eager")
def functions_of_functorch(run: Run) -> None:
    """torch.func.grad of the same module, between ordinary steps."""
    model = net(run)
    weights = dict(model.named_parameters())

    def loss(weights: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(torch.func.functional_call(model, weights, (x,)), y)

    fit(run, model, after=lambda step: run.see(func=torch.func.grad(loss)(weights, *batch(run))) if step % 3 == 2 else None)


@program(tags="eager")
def forward_mode(run: Run) -> None:
    """A Jacobian-vector product of the same module, between ordinary steps."""
    model = net(run)

    def products(step: int) -> None:
        if step % 3 == 2:
            with torch.autograd.forward_ad.dual_level():
                dual = torch.autograd.forward_ad.make_dual(run.randn(6, 8), run.randn(6, 8))
                run.see(tangent=torch.autograd.forward_ad.unpack_dual(model(dual)).tangent)

    fit(run, model, after=products)


@program(tags="modes")
def gradients_off_inside(run: Run) -> None:
    """A part of the net without gradients; grad mode that is off for some steps; inputs that require grad in some."""

    class Half(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                fixed = super().forward(x)
            return super().forward(x) + fixed

    model = net(run, Half(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        x, y = batch(run)
        x.requires_grad_(step % 4 > 1)
        with torch.set_grad_enabled(step % 6 != 5):
            loss, out = squares(model, x, y)
        with run.expect_error("backward"):
            loss.backward()
        see_step(run, loss, model, optimizer, out=out, x=x)


@program(tags="modes")
def autograd_state_moved(run: Run) -> None:
    """A module changes flags of what it is given: requires_grad_, detach_, hooks, retain_grad."""

    class Mover(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.kind = nn.Linear(8, 8), 0

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            if self.kind == 0:
                y.requires_grad_()
            elif self.kind == 1:
                x.detach_()
            elif self.kind == 2:
                x.retain_grad()
            else:
                x.register_hook(lambda grad: grad * 2.0)
            return self.inner(x).detach() + y.detach()

    first, mover, last = run.put(nn.Linear(8, 8)), run.put(Mover()), run.put(nn.Linear(8, 4))
    every = nn.ModuleList([first, mover, last])
    optimizer = torch.optim.SGD(every.parameters(), lr=0.05)
    for step in run.steps():
        x, y = batch(run)
        mover.kind = step // 6
        other = run.randn(6, 8)
        h = first(x) * 1.0
        moved = mover(h, other)
        loss = F.mse_loss(last(h + moved + other), y)
        loss.backward()
        see_step(run, loss, every, optimizer, h=h, moved=moved, other=other)
