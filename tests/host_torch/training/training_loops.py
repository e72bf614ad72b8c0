"""Ordinary training: optimizers, layers, schedules, and weights that change in mid-training."""

import copy
from typing import Any, Callable

import torch
from common import F, Run, batch, fit, net, nn, program, see_step, see_tensors, squares

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
}


def add_optimizer(name: str) -> None:
    @program(tags="plain", name=f"plain_{name}")
    def plain(run: Run) -> None:
        model = net(run)
        fit(run, model, OPTIMIZERS[name](model.parameters()))

    plain.__doc__ = f"A small net with {name}"


for _name in OPTIMIZERS:
    add_optimizer(_name)


def add_layers(name: str, about: str, make: Callable[[], tuple[nn.Module, ...]], act: Any = nn.Tanh) -> None:
    @program(tags="layers", name=name)
    def layers(run: Run) -> None:
        model = net(run, *make(), act=act)
        fit(run, model, torch.optim.AdamW(model.parameters(), lr=0.01))

    layers.__doc__ = about


add_layers("dropout", "Two dropouts around a layer", lambda: (nn.Dropout(0.3), nn.Linear(8, 8), nn.Dropout(0.1)))
add_layers("batch_norm", "Batch norm, whose statistics move in each step", lambda: (nn.BatchNorm1d(8),))
add_layers(
    "batch_norm_average", "Batch norm with a cumulative average", lambda: (nn.BatchNorm1d(8, momentum=None),)
)
add_layers(
    "relu_in_place", "Activations in place", lambda: (nn.Linear(8, 8), nn.ReLU(inplace=True)), lambda: nn.ReLU(inplace=True)
)
add_layers("layer_norm", "Layer norm and GELU", lambda: (nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.body, self.head = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 12, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.body(self.embedding(ids)).tanh()))


@program(tags="tied")
def tied_weights(run: Run) -> None:
    """The embedding is the head, and one layer runs twice: each weight gets several contributions."""
    model = run.put(Tied())
    fit(run, model, torch.optim.Adam(model.parameters(), lr=0.01),
        lambda model, ids: F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()),
        make=lambda run: (run.randint(12, 3, 4),))  # fmt: skip


@program(tags="tied")
def tied_in_mid_training(run: Run) -> None:
    """From the eighth step on a layer has the weight of another one."""
    model = net(run, nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def tie(step: int) -> None:
        if step == 8:
            model[2].weight = model[0].weight

    fit(run, model, optimizer, before=tie)


@program(tags="recurrent")
def recurrent_loop(run: Run) -> None:
    """A cell that is called five times, and backward through time."""
    cell, head = run.put(nn.RNNCell(8, 8)), run.put(nn.Linear(8, 4))
    both = nn.ModuleList([cell, head])
    optimizer = torch.optim.SGD(both.parameters(), lr=0.05)
    for _ in run.steps():
        h = torch.zeros(6, 8, device=run.device)
        for _ in range(5):
            h = cell(run.randn(6, 8), h)
        loss = F.mse_loss(head(h), run.randn(6, 4))
        loss.backward()
        see_step(run, loss, both, optimizer, h=h)


@program(tags="recurrent")
def recurrent_own_cell(run: Run) -> None:
    """A cell of two linear layers; the state of one step goes on into the next one, detached."""
    inside, across = run.put(nn.Linear(8, 8)), run.put(nn.Linear(8, 8))
    both = nn.ModuleList([inside, across])
    optimizer, h = torch.optim.Adam(both.parameters(), lr=0.01), torch.zeros(6, 8, device=run.device)
    for _ in run.steps():
        losses = []
        for _ in range(5):
            h = torch.tanh(inside(run.randn(6, 8)) + across(h))
            losses.append(h.square().mean())
        loss = torch.stack(losses).sum()
        loss.backward()
        see_step(run, loss, both, optimizer, h=h)
        h = h.detach()


@program(tags="shared")
def siamese(run: Run) -> None:
    """Two calls of one net in one loss."""
    model = net(run)

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        one, other = model(x), model(x.flip(0) * 0.5)
        return F.cosine_embedding_loss(one, other, torch.ones(6, device=x.device)) + F.mse_loss(one, y), one, other

    fit(run, model, loss_of=loss)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.out = nn.Linear(8, 8), nn.Linear(8, 4)
        self.main = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(6))
        self.side = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        first = x
        for number, layer in enumerate(self.main):
            x = x + layer(x)
            if number % 2:
                x = x + self.side[number // 2](first)
        return self.out(x)


@program(tags="shared")
def side_branches(run: Run) -> None:
    """A deep net with residual side branches: inner gradients are sums of several."""
    fit(run, run.put(Branches()))


@program(tags="adversarial")
def gan(run: Run) -> None:
    """Two nets and two optimizers; the discriminator runs three times in a step."""
    generator, judge = net(run, out=8), net(run, out=1)
    ours, theirs = (torch.optim.Adam(m.parameters(), lr=0.01, betas=(0.5, 0.99)) for m in (generator, judge))
    for _ in run.steps():
        fake = generator(run.randn(6, 8))
        loss = F.softplus(-judge(run.randn(6, 8))).mean() + F.softplus(judge(fake.detach())).mean()
        theirs.zero_grad()
        loss.backward()
        see_tensors(run, loss=loss, fake=fake, judge=judge)
        theirs.step()
        second = F.softplus(-judge(fake)).mean()
        ours.zero_grad()
        second.backward()
        see_tensors(run, second=second, generator=generator, judged=judge)
        ours.step()


@program(tags="reinforcement")
def target_network(run: Run) -> None:
    """DQN: the target net is called without gradients, and copied every fourth step."""
    model = net(run)
    target = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    for step in run.steps():
        state, following, action = run.randn(6, 8), run.randn(6, 8), run.randint(4, 6, 1)
        with torch.no_grad():
            wanted = run.rand(6) + 0.9 * target(following).max(1).values
        value = model(state).gather(1, action).squeeze(1)
        loss = F.smooth_l1_loss(value, wanted)
        loss.backward()
        see_step(run, loss, model, optimizer, wanted=wanted, value=value)
        if step % 4 == 3:
            target.load_state_dict(model.state_dict())


@program(tags="schedule")
def groups_and_rates(run: Run) -> None:
    """Parameter groups, learning rates that change in each step, and a group that is added."""
    model = net(run, nn.Linear(8, 8))
    optimizer = torch.optim.AdamW([{"params": model[0].parameters()}, {"params": model[3].parameters(), "lr": 0.02}], lr=0.01)

    def rates(step: int) -> None:
        if step == 9:
            optimizer.add_param_group({"params": model[2].parameters(), "weight_decay": 0.0})
        for group in optimizer.param_groups:
            group["lr"] *= 0.97

    fit(run, model, optimizer, before=rates)


@program(tags="schedule")
def scheduler(run: Run) -> None:
    """One of PyTorch's schedulers, and momentum that changes with the rate."""
    model = net(run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=run.count + 1)
    fit(run, model, optimizer, after=lambda step: rates.step())


@program(tags="accumulation")
def accumulation(run: Run) -> None:
    """Gradients of three batches are added before each step."""
    model = net(run)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in run.steps():
        loss, out = squares(model, *batch(run))
        (loss / 3).backward()
        see_tensors(run, loss=loss, out=out, model=model)
        if step % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()


@program(tags="accumulation")
def clipped(run: Run) -> None:
    """Norms of the gradients are clipped."""
    model = net(run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in run.steps():
        loss, out = squares(model, *batch(run))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.2)
        see_step(run, loss, model, optimizer, norm=norm, out=out)


@program(tags="accumulation")
def gradients_kept(run: Run) -> None:
    """zero_grad(set_to_none=False): gradients stay the same tensors."""
    model = net(run)
    optimizer, first = torch.optim.Adam(model.parameters(), lr=0.01), None
    for _ in run.steps():
        optimizer.zero_grad(set_to_none=False)
        loss, out = squares(model, *batch(run))
        loss.backward()
        grads = [p.grad for p in model.parameters()]
        first = first or grads
        run.see(same=[a is b for a, b in zip(grads, first)], out=out, loss=loss, model=model)
        optimizer.step()


@program(tags="weights")
def frozen_layers(run: Run) -> None:
    """Layers are frozen at the eighth step, and unfrozen at the fourteenth."""
    model = net(run, nn.Linear(8, 8), nn.Tanh())

    def freeze(step: int) -> None:
        if step in (8, 14):
            model[0].requires_grad_(step == 14)
            model[2].weight.requires_grad_(step == 14)

    fit(run, model, torch.optim.Adam(model.parameters(), lr=0.01), before=freeze)


@program(tags="weights")
def weights_loaded(run: Run) -> None:
    """Weights are loaded into the same tensors, and later new tensors are assigned."""
    model = net(run)
    kept = copy.deepcopy(model.state_dict())

    def load(step: int) -> None:
        if step == 9:
            model.load_state_dict(kept)
        if step == 14:
            model.load_state_dict({name: x.clone() for name, x in kept.items()}, assign=True)
        if step == 17:
            model[0].weight.data = kept["0.weight"].clone()

    fit(run, model, before=load)


@program(tags="weights")
def averaged_weights(run: Run) -> None:
    """A moving average of the weights, which is evaluated in each step."""
    model = net(run, nn.BatchNorm1d(8))
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    )

    def update(step: int) -> None:
        average.update_parameters(model)
        with torch.no_grad():
            average.eval()
            run.see(averaged=average(run.randn(6, 8)), average=average)

    fit(run, model, after=update)


@program(tags="weights")
def evaluated_between(run: Run) -> None:
    """The same net is evaluated after each second step, without gradients and in inference mode."""
    model = net(run, nn.BatchNorm1d(8), nn.Dropout(0.2))

    def evaluate(step: int) -> None:
        if step % 2 == 0:
            return
        model.eval()
        with torch.inference_mode() if step % 4 == 3 else torch.no_grad():
            see_tensors(run, evaluated=model(run.randn(6, 8)))
        model.train()

    fit(run, model, after=evaluate)


@program(tags="plain")
def other_shapes(run: Run) -> None:
    """The last batch of each epoch is smaller."""
    model, sizes = net(run), iter([6, 6, 6, 3] * run.count)

    def make(run: Run) -> tuple[torch.Tensor, ...]:
        rows = next(sizes)
        return run.randn(rows, 8), run.randn(rows, 4)

    fit(run, model, make=make)
