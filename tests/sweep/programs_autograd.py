"""Uses of autograd: checkpointing, hooks, second derivatives, tied weights, retained gradients, errors."""

from typing import Any

import torch
from bed import Run, program, train
from programs_layers import regress, vectors
from programs_plain import classify, images
from programs_usage import SmallNet
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class Checkpointed(nn.Module):
    """Blocks that are computed again in the backward pass, with dropout, norms and in-place activations."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.1))
            for _ in range(3)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x.mean((2, 3)))


@program(tags="checkpoint conv inplace")
def checkpoint_reentrant(run: Run) -> None:
    """Reentrant checkpoints."""
    train(run, run.put(Checkpointed(True)), lambda: images(run), classify)


@program(tags="checkpoint conv inplace")
def checkpoint_not_reentrant(run: Run) -> None:
    """Checkpoints that are not reentrant."""
    train(run, run.put(Checkpointed(False)), lambda: images(run), classify)


@program(tags="checkpoint")
def checkpoint_of_sequence(run: Run) -> None:
    """checkpoint_sequential over linear layers with in-place activations."""
    parts = [nn.Sequential(nn.Linear(8, 8), nn.ELU(inplace=True)) for _ in range(4)]
    model = run.put(nn.Sequential(*parts, nn.Linear(8, 4)))

    def loss(model: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = checkpoint_sequential(model, 2, x.requires_grad_(), use_reentrant=False)
        return F.mse_loss(out, y), out

    train(run, model, lambda: vectors(run), loss, steps=run.count * 2)


class Scale(nn.Module):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return h.detach().abs().mean(1, keepdim=True) + 1.0


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return self.linear(h).topk(2).indices


class ScaledBlock(nn.Module):
    """A checkpointed block in which a module's result does not require grad."""

    def __init__(self, gated: bool) -> None:
        super().__init__()
        self.a, self.b, self.scale = nn.Linear(8, 8), nn.Linear(8, 8), Scale()
        self.gate = Gate() if gated else None

    def block(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x).tanh()
        s = self.scale(h)
        if self.gate is not None:
            s = s * F.one_hot(self.gate(h), 8).sum(1)
        return (self.b(h).tanh() * s).tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.block, x, use_reentrant=False)


def add_scaled(gated: bool) -> None:
    @program(tags="checkpoint", name="checkpoint_with_gate" if gated else "checkpoint_with_scale")
    def scaled(run: Run) -> None:
        model = run.put(nn.Sequential(nn.Linear(8, 8), ScaledBlock(gated), nn.Linear(8, 4)))
        train(run, model, lambda: vectors(run), regress, steps=run.count * 2)

    about = "A checkpoint around a module whose result does not require grad"
    scaled.__doc__ = about + (", and a gate" if gated else "")


add_scaled(False)
add_scaled(True)


@program(tags="hooks saved_tensors")
def saved_tensor_hooks(run: Run) -> None:
    """Saved tensors are packed as half precision, and kept on the CPU in every second step."""
    model = run.put(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), Scaled(), nn.Linear(16, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    packed: list[int] = []

    def pack(x: torch.Tensor) -> Any:
        packed.append(x.numel())
        return x.dtype, x.to(torch.bfloat16) if x.is_floating_point() else x

    def unpack(kept: Any) -> torch.Tensor:
        return kept[1].to(kept[0])

    for step in run.steps(run.count * 2):
        x, y = vectors(run)
        both = torch.autograd.graph
        with both.save_on_cpu() if step % 2 else both.saved_tensors_hooks(pack, unpack):
            loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        run.see(loss=loss, packed=list(packed), model=model)
        packed.clear()
        optimizer.step()


class Scaled(nn.Module):
    """Multiplies by a number of a module whose result does not require grad."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Scale()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale(x)


@program(tags="hooks conv inplace")
def module_hooks(run: Run) -> None:
    """Forward, pre-, full backward and tensor hooks, on modules and parameters."""
    model = run.put(SmallNet())
    seen: dict[str, Any] = {}
    model.head[4].register_full_backward_hook(lambda module, into, out: seen.update(into=into[0], out=out[0]))
    model.backbone[0].register_forward_hook(lambda module, inputs, out: out * 1.01)
    model.head[1].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 0.99,))
    model.backbone[4].register_forward_hook(lambda module, inputs, out: seen.update(features=out.detach().mean()))
    model.head[1].weight.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
    model.head[4].weight.register_post_accumulate_grad_hook(lambda p: seen.update(norm=p.grad.norm()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in run.steps():
        x, y = images(run)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        run.see(loss=loss, seen=dict(seen), model=model)
        optimizer.step()


class Retains(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.act, self.b = nn.Linear(8, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 4)
        self.h: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.h = self.a(x)
        self.h.retain_grad()
        return self.b(self.act(self.h * 1.0))


class Retainer(nn.Module):
    """Asks for the gradient of its argument, and gives a number that does not require grad."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.retain_grad()
        return x.detach().mean()


@program(tags="retain_grad")
def retained_gradients(run: Run) -> None:
    """Gradients of inner values: asked for in a forward, in a module with a detached result, and outside."""
    model, retainer = run.put(Retains()), run.put(Retainer())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in run.steps(run.count * 4):
        x, y = vectors(run)
        x.requires_grad_()
        out = model(x)
        middle = out * 2.0
        mean = retainer(middle)
        out.retain_grad()
        loss = F.mse_loss(middle, y) + 0.0 * mean
        optimizer.zero_grad()
        loss.backward()
        run.see(loss=loss, x=x, h=model.h, out=out, middle=middle, model=model)
        optimizer.step()


def add_penalty(kind: str) -> None:
    @program(tags="double_backward conv inplace", name=f"gradient_penalty_{kind}")
    def penalty(run: Run) -> None:
        model = run.put(SmallNet())
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in run.steps():
            x, y = images(run)
            x.requires_grad_()
            loss = F.cross_entropy(model(x), y)
            of = [x] if kind == "of_inputs" else list(model.head.parameters())
            gradients = torch.autograd.grad(loss, of, create_graph=True)
            total = loss + sum(gradient.pow(2).sum() for gradient in gradients)
            optimizer.zero_grad()
            total.backward()
            run.see(loss=loss, total=total, x=x, gradients=gradients)
            optimizer.step()
            run.see(model=model)

    penalty.__doc__ = f"A second derivative in the loss ({kind})"


add_penalty("of_inputs")
add_penalty("of_weights")


@program(tags="double_backward higher")
def inner_loop(run: Run) -> None:
    """Meta-learning: gradient steps inside of the loss by functional_call, and a backward pass through them."""
    model = run.put(nn.Sequential(nn.Linear(8, 16), nn.Softplus(), nn.Linear(16, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in run.steps():
        weights = dict(model.named_parameters())
        for _ in range(2):
            x, y = vectors(run)
            inner = F.mse_loss(torch.func.functional_call(model, weights, (x,)), y)
            gradients = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), gradients)}
        x, y = vectors(run)
        loss = F.mse_loss(torch.func.functional_call(model, weights, (x,)), y)
        optimizer.zero_grad()
        loss.backward()
        run.see(loss=loss, inner=inner)
        optimizer.step()
        run.see(model=model)


@program(tags="functorch")
def gradients_of_each_sample(run: Run) -> None:
    """torch.func: vmap of grad, as differential privacy does, with clipping for each sample."""
    model = run.put(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)))

    def loss_of_one(weights: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(torch.func.functional_call(model, weights, (x[None],)), y[None])

    each = torch.func.vmap(torch.func.grad(loss_of_one), in_dims=(None, 0, 0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in run.steps():
        x, y = vectors(run)
        gradients = each({name: p.detach() for name, p in model.named_parameters()}, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        for name, parameter in model.named_parameters():
            factor = (1.0 / norms.clamp(min=1.0)).reshape(-1, *[1] * (gradients[name].dim() - 1))
            parameter.grad = (gradients[name] * factor).sum(0)
        run.see(norms=norms, out=model(x), model=model)
        optimizer.step()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.body, self.head = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 12, bias=False)
        self.act = nn.ELU(inplace=True)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.embedding(tokens)
        for _ in range(3):
            h = self.act(self.body(h))
        return self.head(h)


@program(tags="tied inplace")
def tied_weights(run: Run) -> None:
    """An embedding that is the head's weight, and one layer that runs three times."""
    model = run.put(Tied())

    def loss(model: nn.Module, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = model(tokens)
        return F.cross_entropy(out.flatten(0, 1), tokens.flatten()), out

    train(run, model, lambda: (run.randint(12, 3, 4),), loss, steps=run.count * 2)


@program(tags="partial_backward conv inplace")
def two_heads(run: Run) -> None:
    """Two losses with a backward pass each over one graph, and a gradient that is reversed."""

    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return -0.3 * grad

    model = run.put(SmallNet())
    second = run.put(nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.ReLU(inplace=True), nn.Linear(8, 2)))
    optimizer = torch.optim.SGD([*model.parameters(), *second.parameters()], lr=0.05)
    for _ in run.steps():
        x, y = images(run)
        features = model.backbone(x)
        ours = F.cross_entropy(model.head(features), y)
        theirs = F.cross_entropy(second(Reverse.apply(features)), y % 2)
        optimizer.zero_grad()
        ours.backward(retain_graph=True)
        run.see(after_first=[p.grad for p in model.parameters()])
        theirs.backward()
        run.see(ours=ours, theirs=theirs, features=features)
        optimizer.step()
        run.see(model=model, second=second)


class MarksDirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2.0)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2.0


class Doubles(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return MarksDirty.apply(x)


@program(tags="inplace function")
def function_in_place(run: Run) -> None:
    """A module around a custom function that marks its argument as changed."""
    model = run.put(nn.Sequential(nn.Linear(8, 8), Doubles(), nn.Linear(8, 4)))
    train(run, model, lambda: vectors(run), regress, steps=run.count * 4)


@program(tags="errors inplace")
def errors(run: Run) -> None:
    """What PyTorch refuses: two backward passes, a changed saved value, a leaf that is changed in place."""
    model = run.put(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)))
    act = run.put(nn.ReLU(inplace=True))
    for _ in run.steps(run.count * 2):
        x, _ = vectors(run)
        loss = model(x).sum()
        loss.backward()
        with run.expect_error("second backward"):
            loss.backward()
        h = torch.tanh(model[0](x))
        saved = h.sin()
        act(h)
        with run.expect_error("changed value"):
            (saved + h).sum().backward()
        leaf = run.randn(4, 8).requires_grad_()
        with run.expect_error("leaf in place"):
            act(leaf)
        with run.expect_error("wrong shape"):
            model(run.randn(3, 5))
        run.see(leaf=leaf, h=h, model=model)
        model.zero_grad()


class Detaches(nn.Module):
    def forward(self, x: torch.Tensor) -> None:
        x.detach_()


@program(tags="inplace detach")
def detach_in_place(run: Run) -> None:
    """A module that detaches its argument in place in every second step."""
    first, cut, last = run.put(nn.Linear(8, 8)), run.put(Detaches()), run.put(nn.Linear(8, 4))
    optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.05)
    for step in run.steps(run.count * 4):
        x, y = vectors(run)
        h = first(x)
        if step % 4 != 3:
            cut(h)
        loss = F.mse_loss(last(h), y)
        optimizer.zero_grad()
        loss.backward()
        run.see(loss=loss, h=h)
        optimizer.step()
        run.see(first=first, last=last)


@program(tags="gradients inplace")
def gradients_of_inputs(run: Run) -> None:
    """Adversarial training: gradients of the input by autograd.grad, then a step with the changed input."""
    model = run.put(SmallNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in run.steps():
        x, y = images(run)
        x.requires_grad_()
        (grad,) = torch.autograd.grad(F.cross_entropy(model(x), y), x)
        changed = (x + 0.1 * grad.sign()).detach()
        loss = F.cross_entropy(model(changed), y)
        optimizer.zero_grad()
        loss.backward()
        run.see(loss=loss, grad=grad, x=x, changed=changed)
        optimizer.step()
        run.see(model=model)


@program(tags="anomaly")
def anomaly_mode(run: Run) -> None:
    """detect_anomaly around every step, with a NaN in some of them."""
    model = run.put(nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        x, y = vectors(run)
        optimizer.zero_grad()
        with torch.autograd.detect_anomaly(check_nan=True):
            out = model(x)
            loss = F.mse_loss(out, y) + (out.mul(0.0).sum().sqrt() if step % 5 == 4 else 0.0)
            with run.expect_error("NaN"):
                loss.backward()
        run.see(loss=loss, out=out, model=model)
        if step % 5 != 4:
            optimizer.step()


@program(tags="numbers double_backward")
def sequence_numbers(run: Run) -> None:
    """Autograd's number of each node, by which it orders backward passes. The nodes are of two threads."""
    model = run.put(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)))
    for _ in run.steps():
        x, y = vectors(run)
        x.requires_grad_()
        loss = F.mse_loss(model(x), y)
        (grad,) = torch.autograd.grad(loss, x, create_graph=True)
        total = loss + grad.pow(2).sum()
        run.see(numbers=[value.grad_fn._sequence_nr() for value in (loss, grad, total)])
