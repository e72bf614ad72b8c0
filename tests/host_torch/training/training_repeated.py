"""Modules that are called in turns and many times, and optimizers of many kinds."""

import copy
import random
from typing import Any

import torch
from common import F, Run, batch, fit, net, nn, program, see_squares, see_step, see_tensors, sgd, squares
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn


@program(tags="loops")
def post_accumulate_optimizers(run: Run) -> None:
    """An optimizer for each weight steps in its hook; hooks go and come again."""
    model = net(run, nn.Linear(8, 8))
    each = {weight: torch.optim.SGD([weight], lr=0.05, momentum=0.9) for weight in model.parameters()}

    def step_once(weight: torch.Tensor) -> None:
        each[weight].step()
        each[weight].zero_grad()

    hooks: list[Any] = []
    for step in run.steps():
        if step % 5 == 0:
            hooks = [weight.register_post_accumulate_grad_hook(step_once) for weight in each]
        if step % 5 == 4:
            for hook in hooks:
                hook.remove()
        loss, out = squares(model, *batch(run))
        loss.backward()
        see_tensors(run, loss=loss, out=out)
        run.see(model=model)
        model.zero_grad()


@program(tags="loops")
def gradient_hooks_in_turns(run: Run) -> None:
    """Hooks on weights' gradients that come and go, change gradients, and set others'."""
    model = net(run, nn.Linear(8, 8))
    optimizer = sgd(model)
    for step in run.steps():
        hooks = []
        if step % 3:
            hooks.append(model[0].weight.register_hook(lambda grad: grad.sign() * 0.01))
        if step % 4 == 3:
            hooks.append(model[2].bias.register_hook(lambda grad: model[0].bias.grad))
        loss, out = squares(model, *batch(run))
        if step % 5 == 4:
            hooks.append(model[3].weight.register_hook(lambda grad: grad.clamp(-0.1, 0.1)))
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)
        for hook in hooks:
            hook.remove()


@program(tags="loops")
def accumulation_of_other_sizes(run: Run) -> None:
    """Micro-batches of changing sizes and numbers, weighted by their sizes; the graph of each is gone before the next."""
    model = net(run)
    optimizer = sgd(model, momentum=0.9)
    for step in run.steps():
        for size in ([6], [4, 2], [3, 3], [1, 5])[step % 4]:
            loss = F.mse_loss(model(run.randn(size, 8)), run.randn(size, 4)) * size / 6
            loss.backward()
        see_step(run, loss, model, optimizer)


@program(tags="loops")
def empty_batches(run: Run) -> None:
    """Some batches have no rows."""
    model = net(run)
    optimizer = sgd(model)
    for step in run.steps():
        x, y = run.randn(0 if step % 4 == 3 else 6, 8), run.randn(6, 4)
        out = model(x)
        loss = out.sum() + F.mse_loss(out, y[: len(out)], reduction="sum")
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="loops")
def fixed_point(run: Run) -> None:
    """DEQ: a module is applied to its own result without gradients, then once or twice with them."""
    model, head = net(run, out=8), run.put(nn.Linear(8, 4))
    both = nn.ModuleList([model, head])
    optimizer = sgd(both)
    for step in run.steps():
        x, y = batch(run)
        z = torch.zeros_like(x)
        with torch.no_grad():
            for _ in range(2 + step % 3):
                z = model(z + x)
        z = z.requires_grad_()
        for _ in range(1 + step % 2):
            z = model(z + x)
        loss = F.mse_loss(head(z), y)
        loss.backward()
        see_step(run, loss, both, optimizer, z=z)


@program(tags="loops")
def implicit_differentiation(run: Run) -> None:
    """DEQ: a hook on the fixed point solves for the gradient with passes over the last call."""
    model, head = net(run, out=8), run.put(nn.Linear(8, 4))
    both = nn.ModuleList([model, head])
    optimizer = sgd(both)
    for _ in run.steps():
        x, y = batch(run)
        z = torch.zeros_like(x)
        with torch.no_grad():
            for _ in range(3):
                z = 0.5 * model(z + x)
        z = 0.5 * model(z + x)
        start = z.detach().requires_grad_()
        again = 0.5 * model(start + x)

        def solve(grad: torch.Tensor, start: torch.Tensor = start, again: torch.Tensor = again) -> torch.Tensor:
            g = grad
            for _ in range(3):
                g = torch.autograd.grad(again, start, g, retain_graph=True)[0] + grad
            return g

        z.register_hook(solve)
        loss = F.mse_loss(head(z), y)
        with run.expect_error("the pass"):
            loss.backward()
        see_step(run, loss, both, optimizer, z=z)


class Cell(nn.Module):
    """A cell with two states."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(16, 32)

    def forward(self, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        i, f, g, o = self.gates(torch.cat([x, state[0]], 1)).chunk(4, 1)
        cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * cell.tanh(), cell


@program(tags="loops")
def recurrent_of_other_lengths(run: Run) -> None:
    """A cell with two states is called another number of times in each step; the last state goes on detached."""
    cell, head = run.put(Cell()), run.put(nn.Linear(8, 4))
    both = nn.ModuleList([cell, head])
    optimizer = sgd(both)
    state = (torch.zeros(6, 8, device=run.device), torch.zeros(6, 8, device=run.device))
    for step in run.steps():
        state = tuple(part.detach() for part in state)
        for _ in range(1 + step % 4):
            state = cell(run.randn(6, 8), state)
        loss = F.mse_loss(head(state[0]), run.randn(6, 4))
        loss.backward()
        see_step(run, loss, both, optimizer, state=state)


@program(tags="loops")
def state_never_detached(run: Run) -> None:
    """The last state goes on with its graph: the second pass through it is PyTorch's error, then it is detached."""
    cell = run.put(nn.RNNCell(8, 8))
    optimizer = sgd(cell)
    state = torch.zeros(6, 8, device=run.device)
    for _ in run.steps():
        state = cell(run.randn(6, 8), state)
        loss = state.square().mean()
        with run.expect_error("the pass"):
            loss.backward()
        see_step(run, loss, cell, optimizer, state=state)
        if cell.weight_hh.grad is None and run.count % 2:
            state = state.detach()
        if len(run.records) % 3 == 2:
            state = state.detach()


@program(tags="loops")
def diffusion(run: Run) -> None:
    """A net with the time as a tensor or number, called for training once, and for sampling in between without gradients."""

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.time = nn.Linear(8, 16), nn.Linear(16, 8), nn.Embedding(10, 16)

        def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return self.two(F.silu(self.one(x) + self.time(t)))

    model = run.put(Denoiser())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in run.steps():
        x, noise = run.randn(6, 8), run.randn(6, 8)
        loss = 0.0
        for t in torch.randint(0, 10, (1 + step % 3,)).tolist():
            noisy = x * (1 - t / 10) + noise * (t / 10)
            loss = loss + F.mse_loss(model(noisy, torch.full((6,), t, device=run.device)), noise)
        loss.backward()
        see_step(run, loss, model, optimizer)
        if step % 4 == 3:
            with torch.no_grad():
                for t in reversed(range(4)):
                    x = x - 0.1 * model(x, torch.full((6,), t, device=run.device))
            run.see(sample=x)


@program(tags="loops")
def stochastic_depth(run: Run) -> None:
    """Python's random decides which blocks run; the module is one call."""

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                if random.random() > 0.3:
                    x = x + block(x).tanh()
            return x[:, :4]

    model = run.put(Deep())
    fit(run, model)


@program(tags="loops")
def closures(run: Run) -> None:
    """LBFGS calls its closure a changing number of times."""
    model = net(run)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3, history_size=3)
    for _ in run.steps():
        x, y = batch(run)

        def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
            optimizer.zero_grad()
            loss, _ = squares(model, x, y)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        run.see(loss=loss, model=model)


@program(tags="loops")
def averaged_by_swa(run: Run) -> None:
    """AveragedModel, SWALR and update_bn of swa_utils; the averaged model is trained for a step, too."""
    model = net(run, nn.LayerNorm(8))
    averaged = AveragedModel(model)
    optimizer = sgd(model)
    scheduler = SWALR(optimizer, swa_lr=0.01, anneal_epochs=3)
    for step in run.steps():
        see_squares(run, model, optimizer)
        averaged.update_parameters(model)
        scheduler.step()
        if step % 4 == 3:
            update_bn([batch(run)[0]], averaged)
            loss, out = squares(averaged, *batch(run))
            loss.backward()
            see_tensors(run, averaged_out=out)
            run.see(averaged=averaged)
            averaged.zero_grad()


@program(tags="loops")
def several_models_one_optimizer(run: Run) -> None:
    """Three models in one optimizer; which take part changes with the step."""
    models = nn.ModuleList([net(run), net(run), net(run)])
    optimizer = torch.optim.Adam(models.parameters(), lr=0.01)
    for step in run.steps():
        x, y = batch(run)
        chosen = [models[i] for i in range(3) if (step + i) % 3]
        loss = sum(F.mse_loss(model(x), y) for model in chosen)
        loss.backward()
        see_step(run, loss, models, optimizer)


@program(tags="loops")
def several_optimizers_one_model(run: Run) -> None:
    """As Lightning's manual optimization: body and head have optimizers of their own, which step in turns."""
    model = net(run, nn.Linear(8, 8))
    body, head = sgd(model[:3]), torch.optim.Adam(model[3].parameters(), lr=0.01)
    for step in run.steps():
        used, other = (body, model[3]) if step % 2 else (head, model[:3])
        other.requires_grad_(False)
        loss, out = squares(model, *batch(run))
        used.zero_grad()
        loss.backward()
        other.requires_grad_(True)
        see_tensors(run, loss=loss, out=out)
        run.see(model=model)
        used.step()
        run.see(weights=model)


@program(tags="loops")
def shared_submodules(run: Run) -> None:
    """Two models share a body; each is called, the body too, from outside and between."""
    body = run.put(nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
    one, two = (run.put(nn.Sequential(body, nn.Linear(8, 4))) for _ in range(2))
    every = nn.ModuleList([one, two])
    optimizer = sgd(every)
    for step in run.steps():
        x, y = batch(run)
        loss = F.mse_loss(one(x), y) + (F.mse_loss(two(body(x)), y) if step % 2 else two(x).square().mean())
        loss.backward()
        see_step(run, loss, every, optimizer)


@program(tags="loops")
def moving_average_by_deepcopy(run: Run) -> None:
    """EMA: a deep copy that lerp_ moves; now and then the whole model is replaced by a deep copy of it."""
    model = net(run)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = sgd(model)
    for step in run.steps():
        loss, out = squares(model, *batch(run))
        loss = loss + F.mse_loss(out, average(batch(run)[0]))
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)
        with torch.no_grad():
            for mine, other in zip(average.parameters(), model.parameters()):
                mine.lerp_(other, 0.1)
        if step % 6 == 5:
            model = copy.deepcopy(average).requires_grad_(True)
            optimizer = sgd(model)
        run.see(average=average)
