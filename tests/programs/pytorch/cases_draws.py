"""Random numbers that a model draws on the host: looked at by nobody, by its code from now on, or by somebody else."""

import random
import sys
from typing import Any

from small import CALLS, Net, Run, case, changed_at, data, net, nn, torch


class Encoder(nn.Module):
    """Layer drop as transformers has it: drawn in every layer, looked at in training only."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Net() for _ in range(4))
        self.layer_drop = 0.4
        self.eager_skip = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            probability = torch.rand([])
            skip = self.training and probability < self.layer_drop
            if self.eager_skip:
                skip = probability < 0.5
            if not skip:
                x = layer(x)
        return x


@case("layer drop: drawn and not looked at; the generator is seeded and drawn from in between, the model trains for a while")
def layer_drop(run: Run) -> None:
    changed_at(run, lambda: net(Encoder), lambda _: run.seed(5))
    changed_at(run, lambda: net(Encoder), lambda _: torch.rand(3, device="cpu"))
    model = net(Encoder)
    for i in range(3 * CALLS):
        model.train(CALLS <= i < CALLS + 6)
        run.see(model(data(i)), torch.rand([]) if i % 5 == 0 else None, label=f"call {i}")


@case("layer drop: what was drawn is looked at from some call on, by a switch of the module's; then no longer")
def layer_drop_looked_at(run: Run) -> None:
    model = net(Encoder)
    for i in range(4 * CALLS):
        model.eager_skip = CALLS <= i < 2 * CALLS
        run.see(model(data(i % 7)), label=f"call {i}")


def draw_one(*_: Any) -> None:
    torch.randn(2, device="cpu")


@case("layer drop with a hook that draws as well, put on and taken off; torch.rand replaced by a function of the program's")
def layer_drop_replaced(run: Run) -> None:
    model, rand = net(Encoder), torch.rand
    for i in range(4 * CALLS):
        if i == CALLS:
            handle = model.layers[1].register_forward_hook(draw_one)
        if i == 2 * CALLS:
            handle.remove()
            handle = model.layers[2].register_forward_hook(lambda m, a, y: y * torch.rand([]).item())
        if i == 3 * CALLS:
            handle.remove()
            torch.rand = lambda *a, **k: rand(3).sum()
        run.see(model(data(i % 5)), label=f"call {i}")
    torch.rand = rand


class Kinds(Encoder):
    size = (3,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.rand(self.size)
        b = torch.randn(2, 3, dtype=torch.float64)
        c = torch.randint(0, 9, [4])
        torch.randperm(6)
        x = self.layers[0](x)
        for _ in range(3):
            a = torch.randn(17)
        return self.layers[1](x)


@case("many kinds of numbers drawn and not looked at, of sizes that change, with another default type")
def draws_of_many_kinds(run: Run) -> None:
    model = net(Kinds)
    for i in range(5 * CALLS):
        if i % CALLS == 0:
            model.size = (i // CALLS, 2)
        run.see(model(data(i % 3)), torch.randn(1), label=f"call {i}")
    changed_at(run, lambda: net(Kinds), lambda _: torch.randn(1))  # a normal one is kept for the next draw
    torch.set_default_dtype(torch.float64)
    try:
        for i in range(CALLS):
            run.see(model(data(i % 3)), torch.rand(1), label=f"float64 {i}")
    finally:
        torch.set_default_dtype(torch.float32)


KEPT: list = []


class Hidden(Encoder):
    """Ways of looking at it that do not read the variable."""

    way = "locals"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        probability = torch.rand([])
        x = self.layers[0](x)
        if self.way == "locals":
            return x * locals()["probability"].item()
        if self.way == "eval":
            return x * eval("probability").item()
        if self.way == "frame":
            return x * sys._getframe().f_locals["probability"].item()
        return self.layers[1](x)


class Cell(Encoder):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        probability = torch.rand([])
        scaled = lambda y: y * probability.item()  # noqa: E731
        return scaled(self.layers[0](x))


class Suspended(Encoder):
    def numbers(self, x: torch.Tensor) -> Any:
        probability = torch.rand([])
        yield self.layers[0](x)
        yield probability.item()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        numbers = self.numbers(x)
        y = next(numbers)
        KEPT[:] = [numbers]
        return self.layers[1](y)


@case("what was drawn is seen by locals(), eval(), a frame, a closure, or a generator that outlives the call")
def draws_seen_otherwise(run: Run) -> None:
    for way in ("locals", "eval", "frame", "none"):
        model = net(Hidden)
        model.way = way
        for i in range(CALLS):
            run.see(model(data(i % 3)), label=f"{way} {i}")
    for kind in (Cell, Suspended):
        model = net(kind)
        for i in range(CALLS):
            run.see(model(data(i % 3)), next(KEPT[0]) if KEPT else None, label=f"{kind.__name__} {i}")
    KEPT.clear()


@case("numbers drawn by random, numpy and torch in one call, none of them looked at, or only torch's not")
def draws_of_several_generators(run: Run) -> None:
    class Mixed(Encoder):
        own = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.own:
                chance = random.random()
            probability = torch.rand([])
            return self.layers[0](super().forward(x))

    model = net(Mixed)
    for i in range(4 * CALLS):
        model.own = (i // CALLS) % 2 == 0
        run.see(model(data(i % 3)), label=f"call {i}")
