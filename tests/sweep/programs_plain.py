"""Nets of plain nn: in-place activations, convolution nets, recurrent nets, and a few ways to train them."""

import math
from typing import Callable

import torch
from bed import Run, program, train
from torch import nn
from torch.nn import functional as F

MANY = 12  # tiny nets take so many times more steps than others: Grape seldom looks at small modules

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.ReLU(inplace=True),
    "relu6": lambda: nn.ReLU6(inplace=True),
    "elu": lambda: nn.ELU(inplace=True),
    "celu": lambda: nn.CELU(inplace=True),
    "selu": lambda: nn.SELU(inplace=True),
    "leaky_relu": lambda: nn.LeakyReLU(0.1, inplace=True),
    "rrelu": lambda: nn.RReLU(inplace=True),
    "silu": lambda: nn.SiLU(inplace=True),
    "mish": lambda: nn.Mish(inplace=True),
    "hardswish": lambda: nn.Hardswish(inplace=True),
    "hardsigmoid": lambda: nn.Hardsigmoid(inplace=True),
    "hardtanh": lambda: nn.Hardtanh(inplace=True),
    "threshold": lambda: nn.Threshold(0.1, 0.0, inplace=True),
    "dropout": lambda: nn.Dropout(0.3, inplace=True),
    "alpha_dropout": lambda: nn.AlphaDropout(0.3, inplace=True),
}


def images(run: Run, classes: int = 5, size: int = 16, count: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    return run.randn(count, 3, size, size), run.randint(classes, count)


def classify(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    out = model(x)
    return F.cross_entropy(out, y), out


def add_linear(label: str, make: Callable[[], nn.Module]) -> None:
    @program(tags="inplace linear", name=f"linear_{label}")
    def linear(run: Run) -> None:
        model = run.put(nn.Sequential(nn.Linear(8, 16), make(), nn.Linear(16, 3)))
        batch = lambda: (run.randn(4, 8), run.randint(3, 4))  # noqa: E731
        train(run, model, batch, classify, steps=run.count * MANY)

    linear.__doc__ = f"linear, in-place {label}, linear"


def add_conv(label: str, make: Callable[[], nn.Module]) -> None:
    @program(tags="inplace conv", name=f"conv_{label}")
    def conv(run: Run) -> None:
        model = run.put(
            nn.Sequential(
                nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), make(), nn.Conv2d(8, 8, 3, groups=8), make(),
                nn.Conv2d(8, 16, 3, stride=2), nn.GroupNorm(4, 16), make(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                nn.Linear(64, 5),
            )
        )  # fmt: skip
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        train(run, model, lambda: images(run), classify, optimizer, steps=run.count * 4)


for _label, _make in ACTIVATIONS.items():
    add_linear(_label, _make)
for _label in ("relu", "relu6", "leaky_relu", "hardswish", "silu", "dropout"):
    add_conv(_label, ACTIVATIONS[_label])


class ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(True), nn.BatchNorm2d(width))
        self.last = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        y += x
        return self.last(y)


@program(tags="inplace conv")
def residual_net(run: Run) -> None:
    """Residual blocks that add in place."""
    blocks = [ResidualBlock(8) for _ in range(3)]
    model = run.put(nn.Sequential(nn.Conv2d(3, 8, 3), *blocks, nn.Flatten(), nn.LazyLinear(5)).train())
    model(run.randn(1, 3, 16, 16))
    train(run, model, lambda: images(run), classify)


class UNet(nn.Module):
    def __init__(self, width: int = 8, depth: int = 2, outputs: int = 2) -> None:
        super().__init__()
        sizes = [width * 2**level for level in range(depth + 1)]
        self.first = self.block(3, width)
        self.down = nn.ModuleList(self.block(a, b) for a, b in zip(sizes, sizes[1:]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(sizes, sizes[1:]))
        self.join = nn.ModuleList(self.block(2 * a, a) for a in sizes[:-1])
        self.last = nn.Conv2d(width, outputs, 1)

    @staticmethod
    def block(a: int, b: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        kept = [x]
        for part in self.down:
            x = part(F.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for part, join in zip(reversed(self.up), reversed(self.join)):
            x = join(torch.cat([part(x), kept.pop()], 1))
        return self.last(x)


@program(tags="inplace conv segmentation")
def unet(run: Run) -> None:
    """U-Net with in-place ReLU and skip connections, Adam."""
    model = run.put(UNet())
    batch = lambda: (run.randn(2, 3, 16, 16), run.randint(2, 2, 16, 16))  # noqa: E731
    train(run, model, batch, classify, torch.optim.Adam(model.parameters(), lr=1e-3))


@program(tags="conv inplace")
def autoencoder(run: Run) -> None:
    """A convolutional autoencoder with in-place LeakyReLU."""
    model = run.put(
        nn.Sequential(
            nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(8, 16, 4, 2, 1), nn.LeakyReLU(0.2, True),
            nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(True), nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh(),
        )
    )  # fmt: skip

    def loss(model: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = model(x)
        return F.mse_loss(out, x), out

    train(run, model, lambda: (run.randn(4, 3, 16, 16),), loss, torch.optim.AdamW(model.parameters(), lr=1e-3))


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 32), nn.ReLU(True))
        self.mean, self.log_variance = nn.Linear(32, 4), nn.Linear(32, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(True), nn.Linear(32, 32), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        h = self.encoder(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(z), mean, log_variance


@program(tags="random inplace")
def vae(run: Run) -> None:
    """A variational autoencoder, which draws random numbers in its forward."""
    model = run.put(VAE())

    def loss(model: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out, mean, log_variance = model(x)
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
        return F.binary_cross_entropy(out, x) + divergence, out, mean, log_variance

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train(run, model, lambda: (run.rand(4, 32),), loss, optimizer, steps=run.count * 2)


@program(tags="conv inplace gan")
def gan(run: Run) -> None:
    """DCGAN: the discriminator is trained with detached images, then frozen for the generator."""
    generator = run.put(
        nn.Sequential(
            nn.ConvTranspose2d(8, 16, 4), nn.BatchNorm2d(16), nn.ReLU(True),
            nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh(),
        )
    )  # fmt: skip
    discriminator = run.put(
        nn.Sequential(
            nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(8, 16, 4, 2, 1), nn.BatchNorm2d(16),
            nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(16, 1, 2), nn.Flatten(),
        )
    )  # fmt: skip
    first = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    second = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    ones, zeros = torch.ones(4, 1, device=run.device), torch.zeros(4, 1, device=run.device)
    loss = F.binary_cross_entropy_with_logits
    for _ in run.steps():
        real, fake = run.rand(4, 3, 8, 8), generator(torch.randn(4, 8, 1, 1, device=run.device))
        second.zero_grad()
        of_discriminator = loss(discriminator(real), ones) + loss(discriminator(fake.detach()), zeros)
        of_discriminator.backward()
        second.step()
        run.see(of_discriminator=of_discriminator, discriminator=discriminator)
        first.zero_grad()
        for parameter in discriminator.parameters():
            parameter.requires_grad_(False)
        of_generator = loss(discriminator(fake), ones)
        of_generator.backward()
        for parameter in discriminator.parameters():
            parameter.requires_grad_(True)
        first.step()
        run.see(fake=fake, of_generator=of_generator, generator=generator, first=first, second=second)


@program(tags="inplace siamese")
def siamese(run: Run) -> None:
    """The same net twice in a step, with the triplet loss of three inputs."""
    model = run.put(nn.Sequential(nn.Linear(16, 32), nn.ReLU(True), nn.Dropout(0.2), nn.Linear(32, 8)))

    def loss(model: nn.Module, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = [model(x) for x in inputs]
        return F.triplet_margin_loss(*outputs), *outputs

    train(run, model, lambda: tuple(run.randn(4, 16) for _ in range(3)), loss, steps=run.count * 2)


NO_FUSED_CELLS = "the backward pass of fused LSTM and GRU cells is not simulated"


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.embedding, self.cell, self.head = nn.Embedding(20, 8), kind(8, 12, 2, batch_first=True), nn.Linear(12, 20)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(self.embedding(tokens))[0])


def language(model: nn.Module, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
    out = model(tokens)
    return F.cross_entropy(out[:, :-1].reshape(-1, out.shape[-1]), tokens[:, 1:].reshape(-1)), out


def add_recurrent(kind: Callable[..., nn.Module]) -> None:
    only = "" if kind is nn.RNN else NO_FUSED_CELLS

    @program(tags="recurrent text", name=kind.__name__.lower(), gpu_only=only)
    def recurrent(run: Run) -> None:
        model = run.put(Recurrent(kind))
        train(run, model, lambda: (run.randint(20, 3, 6),), language, torch.optim.RMSprop(model.parameters(), lr=1e-3))


for _kind in (nn.LSTM, nn.GRU, nn.RNN):
    add_recurrent(_kind)


@program(tags="recurrent", gpu_only=NO_FUSED_CELLS)
def lstm_cell_loop(run: Run) -> None:
    """An LSTMCell in a loop of Python, with hidden state that is detached between steps (truncated backpropagation)."""
    cell, head = run.put(nn.LSTMCell(6, 10)), run.put(nn.Linear(10, 1))
    optimizer = torch.optim.Adagrad([*cell.parameters(), *head.parameters()], lr=0.01)
    state = (torch.zeros(3, 10, device=run.device), torch.zeros(3, 10, device=run.device))
    for _ in run.steps():
        state = (state[0].detach(), state[1].detach())
        loss = torch.zeros((), device=run.device)
        for _ in range(4):
            state = cell(run.randn(3, 6), state)
            loss = loss + (head(state[0]) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        run.see(loss=loss, state=state)
        optimizer.step()
        run.see(cell=cell, head=head, optimizer=optimizer)


class GatedCell(nn.Module):
    """A GRU of plain operations, whose state changes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.gates, self.new = nn.Linear(16, 20), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        reset, update = self.gates(torch.cat([x, h], 1)).sigmoid_().chunk(2, 1)
        new = self.new(torch.cat([x, h * reset], 1)).tanh_()
        return h.lerp(new, update)


@program(tags="recurrent inplace")
def recurrent_by_hand(run: Run) -> None:
    """A recurrent cell of plain operations, over sequences of other lengths, with packed loss."""
    cell, head = run.put(GatedCell()), run.put(nn.Linear(10, 2))
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-2)
    for step in run.steps():
        h = torch.zeros(3, 10, device=run.device)
        losses = []
        for _ in range(3 + step % 3):
            h = cell(run.randn(3, 6), h)
            losses.append(F.cross_entropy(head(h), run.randint(2, 3)))
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        run.see(loss=loss, h=h)
        optimizer.step()
        run.see(cell=cell, head=head)


class PositionalEncoding(nn.Module):
    def __init__(self, width: int, learned: bool) -> None:
        super().__init__()
        place = torch.arange(12)[:, None] * torch.exp(-math.log(1e4) * torch.arange(0, width, 2) / width)
        table = torch.stack([place.sin(), place.cos()], -1).reshape(12, width)
        if learned:
            self.pe = nn.Parameter(table)
        else:
            self.register_buffer("pe", table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x += self.pe[: x.shape[1]]
        return x


def add_encoder(learned: bool) -> None:
    @program(tags="inplace attention", name="encoder_learned_positions" if learned else "encoder_fixed_positions")
    def encoder(run: Run) -> None:
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        parts = [nn.Embedding(20, 16), PositionalEncoding(16, learned), nn.TransformerEncoder(layer, 2)]
        model = run.put(nn.Sequential(*parts, nn.Linear(16, 20)))
        train(run, model, lambda: (run.randint(20, 3, 8),), language, torch.optim.AdamW(model.parameters(), lr=1e-3))

    encoder.__doc__ = "A transformer encoder; x += self.pe in a module"


add_encoder(True)
add_encoder(False)


@program(tags="attention")
def sequence_to_sequence(run: Run) -> None:
    """nn.Transformer with masks."""
    model = run.put(nn.Transformer(16, 2, 1, 1, 32, batch_first=True))
    mask = nn.Transformer.generate_square_subsequent_mask(5, device=run.device)

    def loss(model: nn.Module, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = model(a, b, tgt_mask=mask, tgt_is_causal=True)
        return F.mse_loss(out, b), out

    train(run, model, lambda: (run.randn(2, 6, 16), run.randn(2, 5, 16)), loss)
