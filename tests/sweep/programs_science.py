"""Diffusion, differential equations, Gaussian processes, speech, reinforcement learning, and others of their kind."""

from typing import Any

import torch
from bed import Run, program, train
from programs_plain import NO_FUSED_CELLS, UNet
from torch import nn
from torch.nn import functional as F


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time, self.net = nn.Embedding(10, 3), UNet(8, 1, 3)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return self.net(x + self.time(time)[:, :, None, None])


@program(tags="diffusion conv random ema")
def diffusion(run: Run) -> None:
    """Noise prediction with a U-Net, an average of the weights, and samples of it without gradients every few steps."""
    model = run.put(Denoiser())
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    alphas = torch.linspace(0.99, 0.5, 10, device=run.device).cumprod(0)
    images = run.rand(4, 3, 8, 8)
    for step in run.steps():
        time, noise = torch.randint(10, (4,), device=run.device), torch.randn_like(images)
        alpha = alphas[time][:, None, None, None]
        out = model(alpha.sqrt() * images + (1 - alpha).sqrt() * noise, time)
        loss = F.mse_loss(out, noise)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        run.see(loss=loss, out=out, model=model, average=average)
        if step % 3 == 0:
            run.see(sample=denoise(average, alphas))


@torch.no_grad()
def denoise(model: nn.Module, alphas: torch.Tensor) -> torch.Tensor:
    model.eval()
    x = torch.randn(2, 3, 8, 8, device=alphas.device)
    for number in reversed(range(len(alphas))):
        time = torch.full((2,), number, device=alphas.device)
        x = (x - (1 - alphas[number]).sqrt() * model(x, time)) * 1.05
    model.train()
    return x


def add_ode(adjoint: bool) -> None:
    @program("torchdiffeq", tags="ode", name="neural_ode_adjoint" if adjoint else "neural_ode")
    def ode(run: Run) -> None:
        import torchdiffeq  # noqa: PLC0415

        class Field(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = nn.Sequential(nn.Linear(2, 16), nn.ELU(inplace=True), nn.Linear(16, 2))

            def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                return self.net(y**3)

        model = run.put(Field())
        times = torch.linspace(0, 1, 4, device=run.device)
        solve = torchdiffeq.odeint_adjoint if adjoint else torchdiffeq.odeint

        def loss(model: nn.Module, y: torch.Tensor, goal: torch.Tensor) -> tuple[torch.Tensor, ...]:
            options = {"options": {"step_size": 0.25}}
            out = solve(model, y, times, method="rk4", **options)
            return F.l1_loss(out, goal), out

        batch = lambda: (run.randn(3, 2), run.randn(4, 3, 2))  # noqa: E731
        train(run, model, batch, loss, torch.optim.RMSprop(model.parameters(), lr=1e-3))

    ode.__doc__ = f"A neural ODE, Runge-Kutta{', by the adjoint equation' if adjoint else ''}"


add_ode(False)
add_ode(True)


def add_process(deep: bool) -> None:
    @program("gpytorch", tags="gp linalg", name="deep_kernel" if deep else "gaussian_process")
    def process(run: Run) -> None:
        import gpytorch  # noqa: PLC0415

        class Model(gpytorch.models.ExactGP):
            def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any) -> None:
                super().__init__(x, y, likelihood)
                self.mean = gpytorch.means.ConstantMean()
                self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
                self.net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(inplace=True), nn.Linear(8, 2)) if deep else None

            def forward(self, x: torch.Tensor) -> Any:
                x = x if self.net is None else self.net(x)
                return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

        x, y = run.randn(10, 2), run.randn(10)
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = run.put(Model(x, y, likelihood))
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for step in run.steps():
            optimizer.zero_grad()
            loss = -objective(model(x), y)
            loss.backward()
            optimizer.step()
            run.see(loss=loss, model=model)
            if step % 6 == 5:
                model.eval()
                with torch.no_grad():
                    run.see(mean=likelihood(model(run.randn(4, 2))).mean)
                model.train()

    process.__doc__ = f"Exact Gaussian process regression{' on the features of a net' if deep else ''}"


add_process(False)
add_process(True)


@program("torchaudio", tags="speech conv recurrent", gpu_only=f"{NO_FUSED_CELLS}, nor is CTC loss of cuDNN")
def speech_ctc(run: Run) -> None:
    """Mel spectrograms, convolutions with in-place Hardtanh, a GRU, CTC loss."""
    import torchaudio  # noqa: PLC0415

    class Speech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = torchaudio.transforms.MelSpectrogram(8000, n_fft=64, n_mels=8)
            act = nn.Hardtanh(0, 20, inplace=True)
            self.conv = nn.Sequential(nn.Conv1d(8, 16, 3, padding=1), nn.BatchNorm1d(16), act)
            self.rnn, self.head = nn.GRU(16, 16, bidirectional=True, batch_first=True), nn.Linear(32, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.conv((self.features(x) + 1e-6).log()).transpose(1, 2)
            return self.head(self.rnn(x)[0]).log_softmax(-1).transpose(0, 1)

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = model(x)
        lengths = torch.full((2,), out.shape[0]), torch.full((2,), y.shape[1])
        return F.ctc_loss(out, y, *lengths), out

    batch = lambda: (run.randn(2, 480), run.randint(9, 2, 4) + 1)  # noqa: E731
    train(run, run.put(Speech()), batch, loss)


@program("torchaudio", tags="speech attention conv")
def speech_conformer(run: Run) -> None:
    """torchaudio's Conformer."""
    import torchaudio  # noqa: PLC0415

    model = run.put(torchaudio.models.Conformer(16, 2, 32, 2, 7, dropout=0.1))
    lengths = torch.tensor([8, 6], device=run.device)

    def loss(model: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out, _ = model(x, lengths)
        return out.pow(2).mean(), out

    train(run, model, lambda: (run.randn(2, 8, 16),), loss, torch.optim.Adam(model.parameters(), lr=1e-3))


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.ReLU(inplace=True))
        self.actor, self.critic = nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.body(x)
        return self.actor(h), self.critic(h)


@program(tags="reinforcement random inplace")
def actor_critic(run: Run) -> None:
    """An actor and a critic: actions are drawn without gradients, then a whole episode is trained on."""
    model = run.put(ActorCritic())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    world = run.randn(4, 4) * 0.3
    for _ in run.steps():
        state, states, actions, rewards = run.randn(1, 4), [], [], []
        for _ in range(6):
            with torch.no_grad():
                action = torch.distributions.Categorical(logits=model(state)[0]).sample()
            states.append(state)
            actions.append(action)
            state = torch.tanh(state @ world + action[:, None] * 0.1)
            rewards.append(float(-state.pow(2).mean()))
        logits, value = model(torch.cat(states))
        returns = torch.tensor([sum(rewards[number:]) for number in range(6)], device=run.device)
        policy = torch.distributions.Categorical(logits=logits)
        advantage = returns - value[:, 0]
        loss = (-policy.log_prob(torch.cat(actions)) * advantage.detach() + advantage.pow(2)).mean()
        loss = loss - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        run.see(loss=loss, rewards=rewards, actions=actions, model=model)


@program(tags="reinforcement inplace")
def deep_q_learning(run: Run) -> None:
    """Deep Q-learning with a target net that follows in place."""
    make = lambda: nn.Sequential(nn.Linear(4, 16), nn.ReLU(inplace=True), nn.Linear(16, 3))  # noqa: E731
    model, target = run.put(make()), run.put(make())
    target.load_state_dict(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in run.steps(run.count * 2):
        now, then, action, reward = run.randn(5, 4), run.randn(5, 4), run.randint(3, 5, 1), run.randn(5)
        with torch.no_grad():
            goal = reward + 0.9 * target(then).max(1).values
        value = model(now).gather(1, action)[:, 0]
        loss = F.smooth_l1_loss(value, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for ours, theirs in zip(target.parameters(), model.parameters()):
                ours.lerp_(theirs, 0.05)
        run.see(loss=loss, value=value, model=model, target=target)


@program(tags="contrastive conv ema")
def momentum_contrast(run: Run) -> None:
    """Contrastive learning: keys of a second encoder that follows the first, and a queue that is a buffer."""
    make = lambda: nn.Sequential(  # noqa: E731
        nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(72, 8)
    )
    query, key = run.put(make()), run.put(make())
    key.load_state_dict(query.state_dict())
    key.requires_grad_(False)
    queue = F.normalize(run.randn(12, 8))
    optimizer = torch.optim.SGD(query.parameters(), lr=0.03, momentum=0.9)
    for step in run.steps():
        x = run.randn(4, 3, 8, 8)
        q = F.normalize(query(x + 0.1 * torch.randn_like(x)))
        with torch.no_grad():
            for ours, theirs in zip(key.parameters(), query.parameters()):
                ours.mul_(0.9).add_(theirs, alpha=0.1)
            k = F.normalize(key(x))
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.t()], 1) / 0.2
        loss = F.cross_entropy(logits, torch.zeros(4, dtype=torch.long, device=run.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            queue = queue.clone()
            queue[(step % 3) * 4 : (step % 3) * 4 + 4] = k
        run.see(loss=loss, logits=logits, query=query, key=key, queue=queue)


@program(tags="flow linalg")
def normalizing_flow(run: Run) -> None:
    """Affine couplings that write halves in place, and a learned linear map with its log-determinant."""

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Parameter(torch.eye(4) + 0.1 * torch.randn(4, 4))
            self.net = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.1, inplace=True), nn.Linear(16, 4))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            z = x @ self.mix
            scale, shift = self.net(z[:, :2].clone()).chunk(2, 1)
            scale = scale.tanh()
            z[:, 2:].mul_(scale.exp()).add_(shift)
            return z, scale.sum(1) + torch.linalg.slogdet(self.mix).logabsdet

    def loss(model: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z, volume = model(x)
        return (0.5 * z.pow(2).sum(1) - volume).mean(), z

    model = run.put(Flow())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train(run, model, lambda: (run.randn(5, 4),), loss, optimizer, steps=run.count * 2)


@program(tags="implicit")
def deep_equilibrium(run: Run) -> None:
    """A fixed point found without gradients, and a backward pass through one more step by a tensor hook."""

    class Equilibrium(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.head = nn.Linear(8, 8), nn.Linear(6, 8), nn.Linear(8, 3)

        def step(self, z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(0.5 * self.a(z) + self.b(x))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            z = torch.zeros(len(x), 8, device=x.device)
            with torch.no_grad():
                for _ in range(6):
                    z = self.step(z, x)
            z = self.step(z, x)
            if z.requires_grad:
                start = z.detach().requires_grad_()
                again = self.step(start, x)
                z.register_hook(lambda grad: grad + torch.autograd.grad(again, start, grad, retain_graph=True)[0])
            return self.head(z)

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = model(x)
        return F.cross_entropy(out, y), out

    train(run, run.put(Equilibrium()), lambda: (run.randn(4, 6), run.randint(3, 4)), loss)


@program(tags="coordinates derivatives")
def physics_informed(run: Run) -> None:
    """A net of coordinates whose second derivatives are in the loss."""
    model = run.put(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)))

    def loss(model: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = x.detach().requires_grad_()
        u = model(x)
        (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), x, create_graph=True)
        return (first[:, 1] - 0.1 * second[:, 0]).pow(2).mean() + u.pow(2).mean(), u, first, second

    train(run, model, lambda: (run.rand(6, 2),), loss, torch.optim.Adam(model.parameters(), lr=1e-3))
