"""Modules that write where they read: buffers, arguments, views, globals, codebooks, experts."""

from typing import Any, Optional

import torch
from bed import Run, program, train
from programs_plain import classify, images
from torch import nn
from torch.nn import functional as F

GLOBAL_MEAN: dict[str, torch.Tensor] = {}


def regress(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    out = model(x)
    return F.mse_loss(out, y), out


def vectors(run: Run, inputs: int = 8, outputs: int = 4, count: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    return run.randn(count, inputs), run.randn(count, outputs)


class VectorQuantizer(nn.Module):
    """A codebook that follows the mean of what was assigned to it, with straight-through gradients."""

    def __init__(self, codes: int = 8, width: int = 4) -> None:
        super().__init__()
        self.register_buffer("codebook", torch.randn(codes, width))
        self.register_buffer("count", torch.ones(codes))
        self.register_buffer("sums", self.codebook.clone())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        index = torch.cdist(x, self.codebook).argmin(1)
        if self.training:
            with torch.no_grad():
                chosen = F.one_hot(index, len(self.codebook)).to(x.dtype)
                self.count.mul_(0.9).add_(chosen.sum(0), alpha=0.1)
                self.sums.mul_(0.9).add_(chosen.t() @ x, alpha=0.1)
                self.codebook.copy_(self.sums / self.count[:, None].clamp(min=1e-3))
        quantized = self.codebook[index]
        return x + (quantized - x).detach(), F.mse_loss(x, quantized.detach())


class VQAutoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.quantizer, self.decoder = nn.Linear(8, 4), VectorQuantizer(), nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z, commitment = self.quantizer(self.encoder(x))
        return self.decoder(z), commitment


@program(tags="buffers codebook")
def vq_codebook(run: Run) -> None:
    """A vector-quantized autoencoder whose codebook is a moving average."""
    model = run.put(VQAutoencoder())

    def loss(model: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out, commitment = model(x)
        return F.mse_loss(out, x) + 0.25 * commitment, out

    train(run, model, lambda: (run.randn(6, 8),), loss, torch.optim.Adam(model.parameters()), steps=run.count * 2)


class Experts(nn.Module):
    """Top-1 routing: each expert computes its tokens, which index_copy_ puts in place."""

    def __init__(self, width: int = 8, experts: int = 3) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 16), nn.ReLU(inplace=True), nn.Linear(16, width)) for _ in range(experts)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        probabilities = self.router(x).softmax(-1)
        weight, index = probabilities.max(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = (index == number).nonzero()[:, 0]
            out.index_copy_(0, mine, expert(x[mine]) * weight[mine, None])
        return x + out, probabilities.mean(0).pow(2).sum()


@program(tags="moe inplace")
def mixture_of_experts(run: Run) -> None:
    """Experts with routing and a balance loss."""
    model = run.put(Experts())

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out, balance = model(x)
        return F.mse_loss(out, y) + 0.1 * balance, out

    train(run, model, lambda: vectors(run, 8, 8, 6), loss, torch.optim.Adam(model.parameters()))


class WritesInto(nn.Module):
    """Returns nothing: the result is written into the first argument."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 2)

    def forward(self, out: torch.Tensor, x: torch.Tensor) -> None:
        out[:, :2].copy_(self.linear(x))


class Writer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.write, self.last = nn.Linear(8, 8), WritesInto(), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        self.write(h, x)
        return self.last(h)


@program(tags="inplace arguments")
def module_writes_argument(run: Run) -> None:
    """A module that returns None and copies into a view of its argument."""
    train(run, run.put(Writer()), lambda: vectors(run), regress, steps=run.count * 4)


class Masker(nn.Module):
    """In-place writes by name, to what requires grad."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> Any:
        if self.kind == "zero":
            x[1:].zero_()
        elif self.kind == "index_fill":
            x.index_fill_(1, torch.tensor([0, 2], device=x.device), 0.5)
        elif self.kind == "masked_fill":
            x.masked_fill_(x < 0, 0.1)
        elif self.kind == "diagonal":
            x.diagonal().mul_(2.0)
        elif self.kind == "transposed":
            x.t()[0].mul_(0.5)
        elif self.kind == "strided":
            x.view(-1)[::2].add_(1.0)
        elif self.kind == "foreach":
            torch._foreach_mul_([x], 0.5)
        return None


class Masked(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first, self.mask, self.last = nn.Linear(8, 8), Masker(kind), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        self.mask(h)
        return self.last(h)


def add_masked(kind: str) -> None:
    @program(tags="inplace arguments", name=f"module_writes_{kind}")
    def masked(run: Run) -> None:
        train(run, run.put(Masked(kind)), lambda: vectors(run), regress, steps=run.count * 4)

    masked.__doc__ = f"A module that returns None and changes its argument in place ({kind})"


for _kind in ("zero", "index_fill", "masked_fill", "diagonal", "transposed", "strided", "foreach"):
    add_masked(_kind)


class Containers(nn.Module):
    """Changes tensors in a dictionary and a list."""

    def forward(self, batch: dict[str, Any]) -> None:
        batch["hidden"].relu_()
        batch["list"][0].mul_(0.5)


class InContainers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.change, self.last = nn.Linear(8, 8), nn.Linear(8, 8), Containers(), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch = {"hidden": self.a(x), "list": [self.b(x)]}
        self.change(batch)
        return self.last(torch.cat([batch["hidden"], batch["list"][0]], 1))


@program(tags="inplace arguments")
def module_writes_containers(run: Run) -> None:
    """A module that changes tensors in a dictionary and a list of its argument."""
    train(run, run.put(InContainers()), lambda: vectors(run), regress, steps=run.count * 4)


class HiddenState(nn.Module):
    """A state that requires grad within a sequence, and is kept in an attribute and a global."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.head = nn.Linear(8, 8), nn.Linear(8, 4)
        self.h: Optional[torch.Tensor] = None

    def start(self, x: torch.Tensor) -> None:
        self.h = torch.zeros(len(x), 8, device=x.device)
        GLOBAL_MEAN["h"] = torch.zeros(8, device=x.device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.h.mul_(0.5).add_(self.linear(x))
        GLOBAL_MEAN["h"].mul_(0.9).add_(self.h.mean(0))
        return self.head(self.h + GLOBAL_MEAN["h"])


@program(tags="inplace state")
def state_in_attributes(run: Run) -> None:
    """A module whose hidden state requires grad and changes in place, in an attribute and a global."""
    model = run.put(HiddenState())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in run.steps(run.count * 2):
        inputs = [run.randn(4, 8) for _ in range(3)]
        model.start(inputs[0])
        loss = torch.stack([model(x).pow(2).mean() for x in inputs]).sum()
        optimizer.zero_grad()
        loss.backward()
        run.see(loss=loss, state=model.h.detach())
        optimizer.step()
        run.see(model=model)


def add_normed(name: str, about: str) -> None:
    @program(tags="conv parametrization", name=name)
    def normed(run: Run) -> None:
        wrap: Any = {
            "spectral_norm": nn.utils.parametrizations.spectral_norm,
            "weight_norm": nn.utils.parametrizations.weight_norm,
            "old_spectral_norm": nn.utils.spectral_norm,
            "orthogonal": nn.utils.parametrizations.orthogonal,
        }[name]
        inner = nn.Linear(64, 16) if name == "orthogonal" else nn.Conv2d(4, 4, 3, padding=1)
        parts = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True)]
        if name != "orthogonal":
            parts += [wrap(inner), nn.ReLU(inplace=True)]
        parts += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), wrap(inner) if name == "orthogonal" else nn.Linear(64, 16)]
        model = run.put(nn.Sequential(*parts, nn.LeakyReLU(inplace=True), nn.Linear(16, 5)))
        train(run, model, lambda: images(run), classify)

    normed.__doc__ = about


add_normed("spectral_norm", "Spectral norm as a parametrization")
add_normed("old_spectral_norm", "Spectral norm by a forward pre-hook")
add_normed("weight_norm", "Weight norm as a parametrization")
add_normed("orthogonal", "An orthogonal weight as a parametrization")


class InstanceNet(nn.Module):
    """Pooling with indices, unpooling, instance norm with running statistics, pixel shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1)
        self.norm = nn.InstanceNorm2d(8, affine=True, track_running_stats=True)
        self.act, self.pool, self.unpool = nn.PReLU(8), nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, index = self.pool(self.act(self.norm(self.a(x))))
        return self.shuffle(self.b(self.unpool(h, index)))


@program(tags="conv")
def super_resolution(run: Run) -> None:
    """Instance norm with running statistics, unpooling and pixel shuffle."""

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        return run.randn(2, 3, 8, 8), run.randn(2, 3, 16, 16)

    model = run.put(InstanceNet())
    train(run, model, batch, regress, torch.optim.Adam(model.parameters(), lr=1e-3))


@program(tags="conv")
def video_net(run: Run) -> None:
    """3D convolutions over a clip, with in-place ReLU."""
    model = run.put(
        nn.Sequential(
            nn.Conv3d(3, 6, 3, padding=1), nn.BatchNorm3d(6), nn.ReLU(inplace=True), nn.MaxPool3d(2),
            nn.Conv3d(6, 8, 3, padding=1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
            nn.Linear(8, 5),
        )
    )  # fmt: skip
    train(run, model, lambda: (run.randn(2, 3, 4, 8, 8), run.randint(5, 2)), classify)


@program(tags="embedding sparse")
def recommender(run: Run) -> None:
    """EmbeddingBag and embeddings with max_norm, which change their weight in the forward."""

    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user, self.item = nn.Embedding(10, 8, max_norm=1.0), nn.EmbeddingBag(20, 8, mode="sum")
            self.top = nn.Sequential(nn.Linear(16, 8), nn.ReLU(inplace=True), nn.Linear(8, 1))

        def forward(self, user: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
            return self.top(torch.cat([self.user(user), self.item(items)], 1))

    def loss(model: nn.Module, user: torch.Tensor, items: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = model(user, items)
        return F.binary_cross_entropy_with_logits(out, y), out

    model = run.put(Recommender())
    batch = lambda: (run.randint(10, 4), run.randint(20, 4, 3), run.rand(4, 1))  # noqa: E731
    train(run, model, batch, loss, torch.optim.Adagrad(model.parameters(), lr=0.05))
