"""Autocast keeps what it casts of weights up to the end of the block: in calls under no_grad, by the operators that come."""

import threading
from typing import Any

import bed
from small import CALLS, PHASES, F, Net, Run, case, data, net, nn, torch


def blocks(run: Run, call: Any, between: Any = None, lengths: Any = (1, 1, 1, 1, 1, 6, 1, 5, 2, 7)) -> None:
    """Blocks of so many calls each; `between` runs after each call but a block's last one."""
    number = 0
    for block, calls in enumerate(lengths):
        with run.autocast():
            for i in range(calls):
                run.see(call(data(number)), label=f"block {block} call {i}")
                number += 1
                if between is not None and i + 1 < calls:
                    between(number)


@case("blocks of one call and of many, weights that change inside of blocks and between them", mode="no_grad")
def autocast_blocks(run: Run) -> None:
    model = net()
    blocks(run, model)
    blocks(run, model, lambda i: model.second.weight.mul_(1.25))
    with run.autocast(torch.float16):
        for i in range(CALLS):
            run.see(model(data(i)))
    model.first.weight.add_(0.5)
    blocks(run, model)


@case("a block's gradients behind calls under no_grad reach the weights by the casts that these left", mode="grad")
def autocast_gradients_behind(run: Run) -> None:
    model = net()
    for i in range(CALLS):
        with run.autocast():
            for j in range(1 + i % 3):
                with torch.no_grad():
                    run.see(model(data(j)))
            loss = model(data(i)).float().square().sum()
        loss.backward()
        run.see([p.grad for p in model.parameters()])
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad * 1e-4)
        model.zero_grad()


@case("a weight is written to past its version after it was cast in the call: the kept cast is of what it was", mode="no_grad")
def autocast_weight_changes_after(run: Run) -> None:
    class Moving(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            self.second.weight.data.mul_(0.9)
            return y + F.linear(y, self.first.weight).sum()

    class Growing(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.second.weight.mul_(1.01)
            return super().forward(x)

    for kind in (Moving, Growing):
        model = net(kind)
        blocks(run, model)
        blocks(run, model, lambda _, m=model: run.see(F.linear(torch.ones(2, 128, device=bed.device()), m.second.weight)))


@case("a weight is cast to another type first, in a block inside of the call: the outer one's operators use that", mode="no_grad")
def autocast_other_type_inside(run: Run) -> None:
    class Other(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast(x.device.type, torch.float16):
                y = F.linear(x, self.first.weight)
            return y.float().mean() + self.second.bias.sum()

    model = net(Other)
    for i in range(CALLS):
        with run.autocast():
            for _ in range(1 + i % 3):
                run.attempt(model, data(i))
            run.attempt(F.linear, data(i), model.first.weight)  # of the other type: PyTorch's error


@case("two modules share a weight: what one has cast the other uses, in one order and the other", mode="no_grad")
def autocast_shared_weight(run: Run) -> None:
    for phase in PHASES:
        one, other = net(), net(seed=2)
        other.second.weight = one.second.weight
        for i in range(CALLS):
            with run.autocast():
                for model in ((one, other, one) if i < phase else (other, one)):
                    run.see(model(data(i)))
                    one.second.weight.mul_(1.1)


@case("a value that the host reads decides, in calls that leave casts and in others", mode="no_grad")
def autocast_host_read(run: Run) -> None:
    class Deciding(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if bool((x > 100).any()):
                self.first.weight.mul_(1.25)
                return F.linear(x, self.first.weight)
            return super().forward(x)

    for phase in PHASES:
        model = net(Deciding)
        for i in range(CALLS):
            x = data(i)
            if i == phase:
                x[0] = 200
            with run.autocast():
                for _ in range(1 + i % 2):
                    run.see(model(x), model.first.weight)


@case("a tied weight, convolutions, a list of shapes; somebody refers to a weight weakly", mode="no_grad")
def autocast_kinds_of_weights(run: Run) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.inner = nn.Embedding(50, 64), Net()
            self.convolution = nn.Conv1d(64, 64, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ids = (x * 10).long().abs() % 50
            h = self.inner(self.embedding(ids[..., 0]))
            h = self.convolution(h.t().unsqueeze(0)).squeeze(0).t()
            return F.linear(h, self.embedding.weight)

    model = net(Tied)
    blocks(run, model)
    kept = [torch._C._WeakTensorRef(p) for p in model.parameters()]
    blocks(run, model)
    del kept[::2]
    for i in range(12):
        with run.autocast():
            for rows in (3, 5, 3):
                run.see(model(data(i, rows, 64)))


@case("threads that end blocks of their own empty the table of all", mode="no_grad")
def autocast_threads(run: Run) -> None:
    model, other = net(), net(seed=2)

    def elsewhere(i: int) -> None:
        with torch.no_grad(), run.autocast():
            run.see(other(data(i)))

    for _ in range(4):
        with run.autocast():
            for i in range(6):
                run.see(model(data(i)))
                model.third.weight.mul_(1.1)
                if i in (2, 3):
                    thread = threading.Thread(target=elsewhere, args=(i,))
                    thread.start()
                    thread.join()


@case("a part that runs as always beside parts that are replayed, in one block; weights that are swapped", mode="no_grad")
def autocast_children(run: Run) -> None:
    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other, self.calls = Net(), Net(), []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.one(x)
            self.calls.append(float(y.sum()))
            return self.other(y) + F.linear(y, self.one.first.weight).mean()

    model = net(Reading)
    blocks(run, model)
    blocks(run, model, lambda _: model.one.first.weight.mul_(1.1))
    model.other.second.weight = nn.Parameter(model.other.second.weight * 2)
    blocks(run, model)
    model.requires_grad_(False)
    blocks(run, model)
    model.requires_grad_(True)
    blocks(run, model)


@case("blocks on a stream of their own, blocks that change streams, blocks in blocks", mode="no_grad")
def autocast_streams(run: Run) -> None:
    model, stream = net(), run.stream()
    for i in range(CALLS):
        with run.autocast():
            run.see(model(data(i)))
            run.synchronize()
            with run.on(stream):
                y = model(data(i))
            run.synchronize()
            run.see(y)
            with run.autocast(enabled=i % 3 == 0), run.autocast(torch.float16 if i % 2 else torch.bfloat16):
                run.attempt(model, data(i))


@case("the call itself empties what autocast keeps: before, between and behind the operators that fill it", mode="no_grad")
def autocast_emptied_inside(run: Run) -> None:
    class Emptying(Net):
        places: Any = ()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for place, layer in enumerate((self.norm, self.first, F.gelu, self.second)):
                if place in self.places:
                    torch.clear_autocast_cache()
                x = layer(x)
            if 4 in self.places:
                torch.clear_autocast_cache()
            return x

    for places in ((0,), (3,), (4,), (1, 4)):
        model = net(Emptying)
        model.places = places

        def change(_: int, model: Any = model) -> None:
            model.first.weight.data.mul_(1.25)
            model.second.weight.data.mul_(0.75)

        def both(x: torch.Tensor, model: Any = model) -> Any:
            return model(x), F.linear(x.repeat(1, 2), model.second.weight)

        blocks(run, both)
        blocks(run, both, change)


@case("blocks of other types, without a cache, and with casts off inside of the call", mode="no_grad")
def autocast_blocks_inside(run: Run) -> None:
    class Nested(Net):
        def forward(self, x: torch.Tensor, kind: str) -> torch.Tensor:
            options = {
                "half": {"dtype": torch.float16},
                "kept": {},
                "off": {"enabled": False},
                "fresh": {"cache_enabled": False},
            }
            x = self.first(self.norm(x))
            with torch.autocast(x.device.type, **options[kind]):
                y = self.third(F.gelu(x.float()))
            return y + self.second(torch.tanh(x)).sum()

    for kind in ("half", "kept", "off", "fresh"):
        model = net(Nested)
        blocks(run, lambda x, kind=kind: model(x, kind))
        blocks(run, lambda x, kind=kind: model(x, kind), lambda i: model.third.weight.data.mul_(0.9))
    model = net(Nested)
    kinds = ("kept", "off", "fresh", "off", "fresh", "kept")
    with run.autocast():
        for i in range(3 * CALLS):
            run.see(model(data(i), kinds[i % 6]))
            if i % 6 == 5:
                model.third.weight.data.mul_(1.1)
