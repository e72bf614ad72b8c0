"""How others train: weights moved by hand, hooks that come and go, libraries that call modules twice."""

import itertools
import random
from typing import Any

import torch
from common import F, Heads, Run, autocast, batch, net, nn, program, see_squares, see_step, sgd, squares
from torch.nn.utils import parametrizations, parametrize, prune


@program(tags="usage")
def arguments_in_larger_memory(run: Run) -> None:
    """An argument is a part of a larger tensor, or is not; passes that were not foreseen come late."""
    model = net(run)
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        if step % 3 == 0:
            x = torch.stack([x, x])[0]
        loss, out = squares(model, x, y)
        loss.backward(retain_graph=step in (9, 10))
        see_step(run, loss, model, optimizer, out=out)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm = nn.Linear(8, 8), nn.GroupNorm(2, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.body(x))


@program(tags="usage")
def results_that_are_not_returned(run: Run) -> None:
    """A second derivative leads to a norm's deviations, which the call does not return."""
    model = run.put(Normed())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = run.randn(6, 8).requires_grad_(), run.randn(6, 8)
        out = model(x)
        loss = F.mse_loss(out, y)
        if step % 8 == 7:
            (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
            loss = loss + 0.1 * slope.square().sum()
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


class Centred(nn.Module):
    """Subtracts a moving average, which it has just moved."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return self.layer((x - self.mean).tanh())


@program(tags="usage")
def state_that_results_depend_on(run: Run) -> None:
    """Each call moves an average that its results depend on; passes of older calls, too, are not foreseen."""
    model = run.put(Centred())
    optimizer = sgd(model)
    for step in run.steps():
        first, out = squares(model, *batch(run))
        second, _ = squares(model, *batch(run))
        second.backward(retain_graph=step == 9)
        first.backward(retain_graph=step in (8, 9, 13))
        see_step(run, first, model, optimizer, out=out)


@program(tags="usage")
def spectral_norm_and_penalties(run: Run) -> None:
    """A penalty of the gradients, now and then, through a layer whose forward moves its own vectors."""
    model = net(run, parametrizations.spectral_norm(nn.Linear(8, 8)), nn.Tanh())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        loss, out = squares(model, x.requires_grad_(), y)
        if step % 8 == 7:
            (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            loss = loss + slope.square().sum()
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


def add_dropped(name: str, about: str, found: bool) -> None:
    @program(tags="usage", name=name)
    def dropped(run: Run) -> None:
        model = run.put(Heads())
        optimizer = sgd(model)
        for step in run.steps():
            x, y = batch(run)
            with autocast():
                more = [model.other(x)] if found else []
                one, other = model(x)
            loss = F.mse_loss(one.float(), y)
            if step % 8 != 6:
                loss = loss + sum(part.float().square().mean() for part in (other, *more))
            del other, more
            loss.backward(retain_graph=step in (9, 14))
            see_step(run, loss, model, optimizer, one=one)

    dropped.__doc__ = about


add_dropped("casts_that_go_with_a_result", "A result is dropped, and with it the nodes of casts that only it used", False)
add_dropped("found_casts_that_go_with_a_result", "The same with casts that the call found", True)


@program(tags="usage")
def unfrozen_one_by_one(run: Run) -> None:
    """Every fifth step one more block is trained, from the last one on; weights and biases are two groups."""
    blocks = [nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()) for _ in range(4)]
    model = run.put(nn.Sequential(*blocks, nn.Linear(8, 4)))
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, foreach=False)
    for step in run.steps():
        for number, block in enumerate(model):
            block.requires_grad_(number >= 4 - step // 5 % 5)
        see_squares(run, model, optimizer)


@program(tags="usage")
def weights_of_one_vector(run: Run) -> None:
    """vector_to_parameters: weights become views of one vector in mid-training."""
    model = net(run, nn.Linear(8, 8), nn.Tanh())
    optimizer = sgd(model, momentum=0.9)
    for step in run.steps():
        if step % 8 == 5:
            vector = nn.utils.parameters_to_vector(model.parameters())
            nn.utils.vector_to_parameters(vector.detach() * 0.9, model.parameters())
        see_squares(run, model, optimizer)


@program(tags="usage")
def gradients_of_one_vector(run: Run) -> None:
    """Gradients are views of one vector, to which several passes add."""
    model = net(run, nn.Linear(8, 8), nn.Tanh())
    weights = list(model.parameters())
    vector = torch.zeros(sum(p.numel() for p in weights), device=run.device)
    for step in run.steps():
        for p, part in zip(weights, vector.split([p.numel() for p in weights])):
            p.grad = part.view_as(p)
        for _ in range(1 + step % 3):
            loss, out = squares(model, *batch(run))
            loss.backward()
        run.see(loss=loss, out=out, vector=vector, versions=[p.grad._version for p in weights])
        with torch.no_grad():
            for p in weights:
                p.sub_(0.05 * p.grad)
        run.see(model=model)
        vector.zero_()


@program(tags="usage")
def parametrized_weights(run: Run) -> None:
    """Spectral and weight norm as parametrizations, one of which is removed; evaluated in between."""
    spectral, weight = (parametrizations.spectral_norm, parametrizations.weight_norm)
    layers = [spectral(nn.Linear(8, 8)), nn.Tanh(), weight(nn.Linear(8, 8)), nn.Tanh(), nn.Linear(8, 4)]
    model = run.put(nn.Sequential(*layers))
    optimizer = sgd(model)
    for step in run.steps():
        if step == 13:
            parametrize.remove_parametrizations(model[2], "weight")
            optimizer = sgd(model)
        if step % 6 == 5:
            model.eval()
            with torch.no_grad():
                run.see(evaluated=model(run.randn(6, 8)))
            model.train()
        see_squares(run, model, optimizer)


@program(tags="usage")
def pruned_weights(run: Run) -> None:
    """Masks on weights come and go."""
    model = net(run, nn.Linear(8, 8), nn.Tanh())
    optimizer = sgd(model, momentum=0.9)
    for step in run.steps():
        if step == 6:
            prune.l1_unstructured(model[2], "weight", amount=0.3)
        if step == 10:
            prune.random_unstructured(model[0], "weight", amount=0.2)
        if step == 14:
            prune.remove(model[2], "weight")
        see_squares(run, model, optimizer)


class Cell(nn.Module):
    """An LSTM's cell of linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.given, self.hidden = nn.Linear(8, 32), nn.Linear(8, 32, bias=False)

    def forward(self, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        h, c = state
        i, f, g, o = (self.given(x) + self.hidden(h)).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


@program(tags="usage")
def scheduled_sampling(run: Run) -> None:
    """Inputs of a cell are given ones or its own last result, by chance; the state lives on, detached in place."""
    first, cell, head = run.put(nn.RNNCell(8, 8)), run.put(Cell()), run.put(nn.Linear(8, 8))
    all_three = nn.ModuleList([first, cell, head])
    optimizer = torch.optim.RMSprop(all_three.parameters(), lr=0.005, foreach=False)
    h = a = c = torch.zeros(4, 8, device=run.device)
    for step in run.steps():
        given, out, loss = run.randn(4, 4, 8), torch.zeros(4, 8, device=run.device), 0.0
        for t in range(4):
            h = first(given[t] if random.random() < 0.7 else out.detach(), h)
            a, c = cell(h, (a, c))
            out = head(a)
            loss = loss + F.mse_loss(out, given[(t + 1) % 4])
        loss.backward(retain_graph=step % 5 == 2)
        see_step(run, loss, all_three, optimizer, h=h, a=a, c=c)
        h, a, c = h.detach(), a.detach_(), c.clone().detach()


@program(tags="usage")
def hooks_of_each_kind_in_turns(run: Run) -> None:
    """Every fifth step the hooks on modules and weights are others."""
    model = net(run, nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    optimizer = sgd(model)
    seen: list[Any] = []

    def register(kind: int) -> list[Any]:
        if kind == 1:
            return [model[2].register_full_backward_hook(lambda m, given, come: (given[0] * 0.5,))]
        if kind == 2:
            return [model.register_full_backward_hook(lambda m, given, come: seen.append(come[0].sum().item()))]
        if kind == 3:
            doubled = model[2].register_forward_hook(lambda m, given, out: out * 2)
            return [doubled, model[2].register_forward_pre_hook(lambda m, given: (given[0] + 1,))]
        if kind == 4:
            return [p.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1)) for p in model.parameters()]
        return [model.register_full_backward_pre_hook(lambda m, come: (come[0] * 3,))] if kind == 5 else []

    handles: list[Any] = []
    for step in run.steps():
        if step % 5 == 0:
            for handle in handles:
                handle.remove()
            handles = register((0, 2, 4, 1, 3, 5)[step // 5 % 6])
        loss, out = squares(model, *batch(run))
        loss.backward()
        run.see(seen=seen)
        see_step(run, loss, model, optimizer, out=out)


@program(tags="usage")
def cycles_of_two_nets(run: Run) -> None:
    """CycleGAN: two nets run after each other both ways; the judges are frozen in between, and see older results, too."""
    there, back = (run.put(nn.Sequential(nn.Linear(8, 8), nn.ReLU(True), nn.Linear(8, 8))) for _ in range(2))
    judges = nn.ModuleList([net(run, out=1, act=lambda: nn.LeakyReLU(0.2, True)) for _ in range(2)])
    ours = torch.optim.Adam(itertools.chain(there.parameters(), back.parameters()), lr=0.01, foreach=False)
    theirs = torch.optim.Adam(judges.parameters(), lr=0.01, foreach=False)
    pool: list[torch.Tensor] = []
    for _ in run.steps():
        a, b = run.randn(6, 8), run.randn(6, 8)
        of_a, of_b = there(a), back(b)
        judges.requires_grad_(False)
        ours.zero_grad()
        loss = (judges[0](of_b) - 1).square().mean() + (judges[1](of_a) - 1).square().mean()
        loss = loss + F.l1_loss(back(of_a), a) + F.l1_loss(there(of_b), b) + F.l1_loss(there(b), b)
        loss.backward()
        run.see(loss=loss, there=there, back=back, judges=judges)
        ours.step()
        judges.requires_grad_(True)
        theirs.zero_grad()
        pool = [*pool, of_b.detach()][-4:]
        for judge, real, fake in ((judges[0], a, random.choice(pool)), (judges[1], b, of_a.detach())):
            judged = (judge(real) - 1).square().mean() + judge(fake).square().mean()
            judged.backward()
            run.see(**{f"judged {judge is judges[0]}": judged, "judges then": judges})
        theirs.step()
        run.see(weights=nn.ModuleList([there, back, judges]), ours=ours, theirs=theirs)


@program(tags="usage")
def gradients_of_tasks_projected(run: Run) -> None:
    """PCGrad: one pass for each task over one graph; gradients that disagree are projected."""
    body, heads = net(run, nn.Linear(8, 8), nn.Tanh(), out=8), run.put(nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 4)]))
    weights = list(body.parameters())
    optimizer = torch.optim.Adam([*weights, *heads.parameters()], lr=0.01, foreach=False)
    for _ in run.steps():
        x, y = batch(run)
        features = body(x)
        losses = [F.mse_loss(heads[0](features), y), F.l1_loss(heads[1](features), y.flip(0))]
        tasks = []
        for number, loss in enumerate(losses):
            optimizer.zero_grad()
            loss.backward(retain_graph=number == 0)
            tasks.append([p.grad.clone() for p in weights])
            run.see(**{f"heads {number}": heads, f"body {number}": body})
        dot = sum((a * b).sum() for a, b in zip(*tasks))
        norm = sum((b * b).sum() for b in tasks[1])
        for p, a, b in zip(weights, *tasks):
            p.grad = torch.where(dot < 0, a - dot / norm * b, a) + b
        optimizer.step()
        run.see(losses=losses, body=body, heads=heads, optimizer=optimizer)


@program(tags="usage")
def calls_again_with_their_random_numbers(run: Run) -> None:
    """GradCache: results without gradients, gradients of these, then the same calls again with the same dropout."""
    model = net(run, nn.Dropout(0.3), nn.Linear(8, 8), nn.Tanh())
    optimizer = sgd(model)
    for _ in run.steps():
        chunks, states, made = [run.randn(3, 8) for _ in range(3)], [], []
        with torch.no_grad():
            for chunk in chunks:
                states.append(torch.cuda.get_rng_state())
                made.append(model(chunk))
        whole = torch.cat(made).requires_grad_()
        loss = F.cross_entropy(whole @ whole.t(), torch.arange(9, device=whole.device))
        loss.backward()
        after = torch.cuda.get_rng_state()
        for chunk, state, first, gradient in zip(chunks, states, made, whole.grad.split(3)):
            torch.cuda.set_rng_state(state)
            out = model(chunk)
            run.see(same=torch.equal(out, first), out=out)
            (out * gradient).sum().backward()
        torch.cuda.set_rng_state(after)
        see_step(run, loss, model, optimizer, whole=whole)


@program(tags="usage")
def dropout_under_forked_random_numbers(run: Run) -> None:
    """R-Drop: two calls whose dropout differs; the second one has a forked random state in each fourth step."""
    model = net(run, nn.Dropout(0.3), nn.Linear(8, 8), nn.Tanh())
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        one = model(x)
        if step % 4 == 1:
            with torch.random.fork_rng(devices=[0], device_type="cuda"):
                torch.manual_seed(step)
                other = model(x)
        else:
            other = model(x)
        loss = F.mse_loss(one, y) + F.kl_div(one.log_softmax(1), other.log_softmax(1), log_target=True)
        loss.backward()
        see_step(run, loss, model, optimizer, one=one, other=other)


@program(tags="usage")
def weights_made_by_another_net(run: Run) -> None:
    """The weights of a net are results of another one, with their graph."""
    model = net(run)
    sizes = {name: p.shape for name, p in model.named_parameters()}
    maker = run.put(nn.Linear(3, sum(size.numel() for size in sizes.values())))
    optimizer = sgd(maker)
    for _ in run.steps():
        x, y = batch(run)
        parts = (maker(run.randn(3)) * 0.3).split([size.numel() for size in sizes.values()])
        made = {name: part.view(size) for (name, size), part in zip(sizes.items(), parts)}
        out = torch.func.functional_call(model, made, (x,))
        loss = F.mse_loss(out, y)
        loss.backward()
        see_step(run, loss, maker, optimizer, out=out)


class Adapted(nn.Module):
    """A frozen layer with an adapter, which may be merged into its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(8, 8).requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(8, 2)), nn.Parameter(torch.zeros(2, 8))
        self.merged = False

    def merge(self, merged: bool) -> None:
        change = (self.down @ self.up).t().data
        self.base.weight.data += change if merged else -change
        self.merged = merged

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) if self.merged else self.base(x) + x @ self.down @ self.up


@program(tags="usage")
def adapters_merged_and_taken_out(run: Run) -> None:
    """Adapters are merged, by `.data`, every fourth step; then the net is evaluated and a pass runs through it."""
    model = net(run, Adapted(), nn.Tanh(), Adapted())
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, foreach=False)
    adapted = [layer for layer in model if isinstance(layer, Adapted)]
    for step in run.steps():
        see_squares(run, model, optimizer)
        if step % 4 != 3:
            continue
        for layer in adapted:
            layer.merge(True)
        with torch.no_grad():
            run.see(evaluated=model(run.randn(6, 8)))
        run.see(slopes=torch.autograd.grad(model(run.randn(6, 8)).sum(), model[0].weight))
        for layer in adapted:
            layer.merge(False)


@program("gpytorch", tags="usage libraries")
def gaussian_process_with_closures(run: Run) -> None:
    """An exact Gaussian process: L-BFGS calls the model several times a step, and predictions come in between."""
    import gpytorch

    class Process(gpytorch.models.ExactGP):
        def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2))

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x, y, likelihood = run.randn(10, 2), run.randn(10), run.put(gpytorch.likelihoods.GaussianLikelihood())
    model = run.put(Process(x, y, likelihood))
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = -marginal(model(x), y)
        loss.backward()
        run.see(loss=loss)
        return loss

    for step in run.steps():
        optimizer.step(closure)
        run.see(model=model)
        if step % 5 != 4:
            continue
        model.eval()
        likelihood.eval()
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            run.see(mean=likelihood(model(run.randn(4, 2))).mean)
        model.train()
        likelihood.train()


@program("peft", "transformers", tags="usage libraries")
def preferences_against_the_base(run: Run) -> None:
    """DPO of an adapter: the reference is the same model with its adapter switched off, without gradients."""
    import peft
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                         intermediate_size=32, max_position_embeddings=32, bos_token_id=1, eos_token_id=2)  # fmt: skip
    adapter = peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["q_proj", "v_proj"])
    model = run.put(peft.get_peft_model(LlamaForCausalLM(config), adapter))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01, foreach=False)

    def likelihood(ids: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=ids).logits[:, :-1].log_softmax(-1)
        return logits.gather(2, ids[:, 1:, None]).squeeze(2).sum(1)

    for step in run.steps():
        good, bad = run.randint(32, 2, 6), run.randint(32, 2, 6)
        with torch.no_grad(), model.disable_adapter():
            before = likelihood(good) - likelihood(bad)
        if step % 2:
            one, other = likelihood(torch.cat([good, bad])).chunk(2)
        else:
            one, other = likelihood(good), likelihood(bad)
        loss = -F.logsigmoid(0.1 * (one - other - before)).mean()
        loss.backward()
        see_step(run, loss, model, optimizer, one=one, before=before)
