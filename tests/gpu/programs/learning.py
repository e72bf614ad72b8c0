"""Programs of reinforcement learning, adversarial nets and training loops of libraries."""

import copy
import math
from typing import Any, Iterator

import torch
from torch import nn
from torch.nn import functional as F

from bed import Run, listed

Results = Iterator[Any]


class Pendulums:
    """As many as `count`, on the host; each wants to stand."""

    def __init__(self, run: Run, count: int) -> None:
        self.angle = (torch.rand(count, generator=run.data) * 2 - 1) * math.pi
        self.speed = torch.rand(count, generator=run.data) * 2 - 1

    def seen(self) -> torch.Tensor:
        return torch.stack([self.angle.cos(), self.angle.sin(), self.speed], 1)

    def step(self, push: torch.Tensor) -> torch.Tensor:
        reward = -(self.angle.remainder(2 * math.pi).sub(math.pi) ** 2 + 0.1 * self.speed**2)
        self.speed = (self.speed + 0.05 * (15 * self.angle.sin() + 3 * push)).clamp(-8, 8)
        self.angle = self.angle + 0.05 * self.speed
        return reward


def tower(inputs: int, outputs: int, width: int = 64) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs))


@listed(units=12)
def ppo(run: Run) -> Results:
    """PPO: 64 steps of eight pendulums without gradients, then four epochs of shuffled batches"""
    policy, value = run.put(tower(3, 1), train=True), run.put(tower(3, 1), train=True)
    spread = nn.Parameter(torch.zeros(1, device=run.device))
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters(), spread], 3e-4)
    world = Pendulums(run, 8)
    while True:
        seen, pushed, likely, rewards = [], [], [], []
        for _ in range(run.size(64, 4)):
            state = world.seen().to(run.device)
            with torch.no_grad():
                choice = torch.distributions.Normal(policy(state)[:, 0], spread.exp())
                push = choice.sample()
                likely.append(choice.log_prob(push))
            rewards.append(world.step(push.cpu()).to(run.device))
            seen.append(state)
            pushed.append(push)
        states, pushes, before, gained = (torch.cat(part) for part in (seen, pushed, likely, rewards))
        for _ in range(4):
            for rows in torch.randperm(len(states), device=run.device).split(128):
                choice = torch.distributions.Normal(policy(states[rows])[:, 0], spread.exp())
                ratio = (choice.log_prob(pushes[rows]) - before[rows]).exp()
                better = gained[rows] - value(states[rows])[:, 0]
                clipped = torch.min(ratio * better.detach(), ratio.clamp(0.8, 1.2) * better.detach())
                loss = -clipped.mean() + 0.5 * better.square().mean() - 0.01 * choice.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_([*policy.parameters(), *value.parameters()], 0.5)
                optimizer.step()
        yield loss.item(), gained.mean().item()


@listed(units=300)
def soft_actor_critic(run: Run) -> Results:
    """A soft actor and two critics with targets that follow slowly; one step of the world for each step of learning"""
    actor, critics = run.put(tower(3, 2), train=True), run.put(nn.ModuleList(tower(4, 1) for _ in "ab"), train=True)
    targets = copy.deepcopy(critics).requires_grad_(False)
    optimizers = [torch.optim.Adam(net.parameters(), 3e-4) for net in (actor, critics)]
    world = Pendulums(run, 1)
    memory = [(torch.randn(3), torch.randn(1), torch.randn(1), torch.randn(3)) for _ in range(256)]

    def act(states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_spread = actor(states).chunk(2, -1)
        choice = torch.distributions.Normal(mean, log_spread.clamp(-5, 2).exp())
        push = choice.rsample()
        return push.tanh(), (choice.log_prob(push) - torch.log1p(-push.tanh() ** 2 + 1e-6)).sum(-1, keepdim=True)

    while True:
        with torch.no_grad():
            state = world.seen()
            push = act(state.to(run.device))[0].cpu()[0]
        reward = world.step(push)
        memory.append((state[0], push, reward, world.seen()[0]))
        states, pushes, rewards, nexts = (
            torch.stack(part).to(run.device) for part in zip(*run.choice.sample(memory, 64))
        )
        with torch.no_grad():
            new, likely = act(nexts)
            wanted = rewards + 0.99 * (torch.min(*(net(torch.cat([nexts, new], 1)) for net in targets)) - 0.2 * likely)
        loss = sum(F.mse_loss(net(torch.cat([states, pushes], 1)), wanted) for net in critics)
        optimizers[1].zero_grad()
        loss.backward()
        optimizers[1].step()
        new, likely = act(states)
        gain = (0.2 * likely - torch.min(*(net(torch.cat([states, new], 1)) for net in critics))).mean()
        optimizers[0].zero_grad()
        gain.backward()
        optimizers[0].step()
        with torch.no_grad():
            for target, net in zip(targets.parameters(), critics.parameters()):
                target.lerp_(net, 0.005)
        yield loss.item(), gain.item()


@listed("accelerate", "transformers", units=60)
def accelerate_learns(run: Run) -> Results:
    """accelerate trains a GPT-2 with accumulated gradients, and evaluates it now and then"""
    import transformers as hf  # noqa: PLC0415
    from accelerate import Accelerator  # noqa: PLC0415

    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=run.device.type == "cpu")
    config = hf.GPT2Config(n_layer=run.size(4, 1), n_embd=run.size(256, 32), n_head=4, vocab_size=1000)
    made = hf.GPT2LMHeadModel(config)
    model, optimizer = accelerator.prepare(made, torch.optim.AdamW(made.parameters(), 1e-4))
    step = 0
    while True:
        model.train()
        with accelerator.accumulate(model):
            ids = run.tokens(4, run.choice.choice((32, 48, 64)))
            loss = model(ids, labels=ids).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        step += 1
        if step % 20 == 0:
            model.eval()
            with torch.no_grad():
                ids = run.tokens(4, 64)
                yield loss.item(), model(ids, labels=ids).loss.item()
        else:
            yield loss.item()


@listed(units=200)
def lstm_predicts_series(run: Run) -> Results:
    """An LSTM forecasts series, a step after the other, as in PyTorch's own example"""
    model = run.put(nn.ModuleDict({"cell": nn.LSTMCell(1, 51), "other": nn.LSTMCell(51, 51), "out": nn.Linear(51, 1)}))
    while True:
        series = run.randn(16, run.size(20, 4))
        h, c = torch.zeros(16, 51, device=run.device), torch.zeros(16, 51, device=run.device)
        k, d = h.clone(), c.clone()
        said = []
        with torch.no_grad():
            for value in [*series.split(1, 1), *[None] * run.choice.randint(2, 8)]:
                h, c = model["cell"](said[-1] if value is None else value, (h, c))
                k, d = model["other"](h, (k, d))
                said.append(model["out"](k))
        yield torch.cat(said, 1).cpu()


@listed(units=60)
def wgan_with_penalty(run: Run) -> Results:
    """A Wasserstein GAN with a gradient penalty: five steps of the critic for one of the generator"""
    generator, critic = run.put(tower(8, 2, 128), train=True), run.put(tower(2, 1, 128), train=True)
    optimizers = [torch.optim.Adam(net.parameters(), 1e-4, betas=(0.5, 0.9)) for net in (generator, critic)]
    while True:
        for _ in range(5):
            real = run.randn(64, 2)
            with torch.no_grad():
                fake = generator(run.randn(64, 8))
            mixed = torch.lerp(real, fake, torch.rand(64, 1, device=run.device)).requires_grad_()
            (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
            loss = critic(fake).mean() - critic(real).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()
            optimizers[1].zero_grad()
            loss.backward()
            optimizers[1].step()
        gain = -critic(generator(run.randn(64, 8))).mean()
        optimizers[0].zero_grad()
        gain.backward()
        optimizers[0].step()
        yield loss.item(), gain.item()


@listed("pytorch_lightning", units=40)
def autoencoder_of_lightning(run: Run) -> Results:
    """A LightningModule's own loop: each unit is a short `fit` and a `predict` of new data"""
    import pytorch_lightning as pl  # noqa: PLC0415

    class Auto(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 32))

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            return F.mse_loss(self.net(batch), batch)

        def predict_step(self, batch: Any, number: int) -> torch.Tensor:
            return self.net(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 1e-3)

    model = Auto()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    while True:
        data = torch.utils.data.DataLoader(torch.randn(64, 32, generator=run.data), batch_size=16)
        kind = "gpu" if run.device.type == "cuda" else "cpu"
        pl.Trainer(max_epochs=1, accelerator=kind, devices=1, **quiet).fit(model, data)
        yield pl.Trainer(accelerator=kind, devices=1, **quiet).predict(model, data)
