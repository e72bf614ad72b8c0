"""Random numbers that are drawn on the host: calls that never look at them are replayed, from Python 3.12 on, and draw them."""
import sys

import torch
from bed import case
from tiny import Net, data, net

TOLD = sys.version_info >= (3, 12)  # of instructions, by the interpreter
UNSEEN = "eer{6}" if TOLD else "eee[ep]{5}"
KEPT = []


class Dropped(Net):
    """Layer drop: the number counts in training only."""

    draws, kept = 3, None

    def forward(self, x):
        for _ in range(self.draws):
            probability = torch.rand(())
            skip = self.training and probability.item() < 0.5
            if not skip:
                x = super().forward(x)
        return x


def calls(run, model, count=8):
    for i in range(count):
        run(model, data(i))


@case(UNSEEN)
def drawn_and_not_looked_at(run):
    calls(run, net(Dropped))
    run.see(torch.rand(3))


@case(UNSEEN)
def draws_between_the_calls(run):
    model = net(Dropped)
    for i in range(8):
        run(model, data(i))
        if i % 3 == 2:
            run.see(torch.rand(2))
        if i == 6:
            torch.manual_seed(8)
    run.see(torch.rand(2))


@case(UNSEEN + "[ep]{6}.{4}")
def looked_at_from_some_call_on(run):
    model = net(Dropped)
    calls(run, model)
    model.train()
    calls(run, model, 6)
    model.eval()
    calls(run, model, 4)
    run.see(torch.rand(2))


@case(UNSEEN + UNSEEN if TOLD else ".{16}")
def another_amount(run):
    model = net(Dropped)
    calls(run, model)
    model.draws = 2
    calls(run, model)
    run.see(torch.rand(2))


@case("eee[ep]{5}", reason="draws random numbers on the host")
def kept_for_later(run):
    class Keeping(Net):
        def forward(self, x):
            KEPT.append(torch.rand(2))
            return super().forward(x)

    calls(run, net(Keeping))
    run.see(*KEPT)
    KEPT.clear()


@case("eee[ep]{5}", reason="draws random numbers on the host")
def seen_by_locals(run):
    class Local(Net):
        def forward(self, x):
            number = torch.rand(())
            return super().forward(x) * locals()["number"].item()

    calls(run, net(Local))


@case("eee[ep]{5}", reason="draws random numbers on the host")
def seen_by_a_closure(run):
    class Closure(Net):
        def forward(self, x):
            number = torch.rand(())
            scale = lambda y: y * number.item()  # noqa: E731
            return scale(super().forward(x))

    calls(run, net(Closure))


@case("eee[ep]{5}", reason="draws random numbers on the host")
def seen_by_a_generator_later(run):
    class Suspended(Net):
        def numbers(self, x):
            number = torch.rand(())
            yield super().forward(x)
            yield number.item()

        def forward(self, x):
            steps = self.numbers(x)
            y = next(steps)
            KEPT[:] = [steps]
            return y

    model = net(Suspended)
    for i in range(8):
        run(model, data(i))
        run.see(next(KEPT[0]))
    KEPT.clear()


@case("ee(re){3}" if TOLD else UNSEEN, environment={"GRAPE_VALIDATE": "2"}, validated=False)
def draws_validated(run):
    calls(run, net(Dropped))
    run.see(torch.rand(3))
