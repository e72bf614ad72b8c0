"""The module's state and the globals, changed by the call itself."""
import collections

import this_helper
import torch
from bed import case
from tiny import Net, data, net

COUNTS = [0]
NUMBER = 0
BY_MODULE = {}
DEQUE = collections.deque()
BYTES = bytearray(1)


class Stats:
    calls = 0


STATS = Stats()


class Slotted:
    __slots__ = ("calls",)


SLOTTED = Slotted()


def helper(x):
    return x * 2


def counting(run, count, see, calls=8, kind=None):
    """A model whose forward calls `count(self)`; `see()` is what has been counted."""

    class Counting(kind or Net):
        def forward(self, x):
            count(self)
            return super().forward(x)

    model = net(Counting)
    for i in range(calls):
        run(model, data(i))
    run.see(see(model))


@case("[ep]{8}", reason="changes its module")
def counter_in_the_module(run):
    def count(model):
        model.count += 1

    counting(run, count, lambda model: model.count)


@case("[ep]{8}")
def counter_scales_the_result(run):
    class Counting(Net):
        def forward(self, x):
            self.count += 1
            return super().forward(x) * self.count

    model = net(Counting)
    for _ in range(8):
        run(model, data())
    run.see(model.count)


@case("[ep]{8}")
def counter_in_a_list(run):
    def count(_):
        COUNTS[0] += 1

    counting(run, count, lambda _: COUNTS)


@case("[ep]{8}")
def counter_in_a_global(run):
    global NUMBER
    NUMBER = 0

    def count(_):
        global NUMBER
        NUMBER += 1

    counting(run, count, lambda _: NUMBER)


@case("[ep]{8}")
def counter_in_a_closure(run):
    number = 0

    def count(_):
        nonlocal number
        number += 1

    counting(run, count, lambda _: number)


@case("[ep]{8}")
def counter_in_a_default(run):
    counts = []

    def count(_, counts=counts):
        counts.append(1)

    counting(run, count, lambda _: len(counts))


@case("[ep]{8}")
def counter_in_the_class(run):
    def count(model):
        type(model).calls = getattr(type(model), "calls", 0) + 1

    counting(run, count, lambda model: type(model).calls)


@case("[ep]{8}")
def counter_in_another_class(run):
    def count(_):
        Stats.calls += 1

    counting(run, count, lambda _: Stats.calls)


@case("[ep]{8}")
def counter_in_an_object(run):
    STATS.seen = 0

    def count(_):
        STATS.seen = getattr(STATS, "seen", 0) + 1

    counting(run, count, lambda _: STATS.seen)


@case("[ep]{8}")
def counter_in_a_slot(run):
    SLOTTED.calls = 0

    def count(_):
        SLOTTED.calls += 1

    counting(run, count, lambda _: SLOTTED.calls)


@case("[ep]{8}")
def counter_in_a_function(run):
    helper.calls = 0

    def count(_):
        helper.calls += 1

    counting(run, count, lambda _: helper.calls)


@case("[ep]{8}")
def counter_in_another_module(run):
    this_helper.CALLS = 0

    def count(_):
        this_helper.CALLS += 1

    counting(run, count, lambda _: this_helper.CALLS)


@case("[ep]{8}")
def counter_by_module(run):
    def count(model):
        BY_MODULE[model] = BY_MODULE.get(model, 0) + 1

    counting(run, count, lambda model: BY_MODULE[model])


@case("[ep]{8}")
def counter_in_a_deque(run):
    DEQUE.clear()
    counting(run, lambda _: DEQUE.append(1), lambda _: len(DEQUE))


@case("[ep]{8}")
def counter_in_bytes(run):
    def count(_):
        BYTES[0] += 1

    counting(run, count, lambda _: BYTES[0])


@case("[ep]{8}")
def counter_by_setattr(run):
    def count(model):
        setattr(model, "co" + "unt", model.count + 1)
        vars(model)["scale"] += 1

    counting(run, count, lambda model: (model.count, model.scale))


@case("[ep]{8}")
def counter_by_globals(run):
    global NUMBER
    NUMBER = 0

    def count(_):
        name = "NUM" + "BER"
        globals()[name] += 1

    counting(run, count, lambda _: NUMBER)


@case("e{4}r{10}")
def attribute_set_in_each_call(run):
    class Setting(Net):
        def forward(self, x):
            self.last = super().forward(x)
            return self.last * 2

    model = net(Setting)
    for i in range(14):
        run(model, data(i))
        run.see(model.last)


@case("[ep]{8}")
def results_kept_in_a_list(run):
    kept = []

    class Keeping(Net):
        def forward(self, x):
            y = super().forward(x)
            kept.append(y)
            return y

    model = net(Keeping)
    for i in range(8):
        run(model, data(i))
    run.see(kept)


# A memory of earlier calls: computed once, taken from there ever after.
@case("(e{3}r{5})+")
def remembers_a_tensor(run):
    class Remembering(Net):
        def forward(self, x):
            if self.scale == 1.0:
                self.scale = torch.ones(8, device="cuda") * 3
            return super().forward(x) * self.scale

    model = net(Remembering)
    for i in range(16):
        if i == 8:
            model.scale = 1.0
        run(model, data(i))


class Running(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        y = super().forward(x)
        self.mean.mul_(0.9).add_(y[0] * 0.1)
        self.batches.add_(1)
        return y + self.mean


@case("eer{8}")
def buffer_changed_by_the_call(run):
    model = net(Running)
    for i in range(10):
        run(model, data(i))
        run.see(model.mean, model.batches)


@case("e{4}r{6}")
def buffer_replaced_by_the_call(run):
    class Replacing(Running):
        def forward(self, x):
            y = super().forward(x)
            self.mean = self.mean * 0.9 + y[0] * 0.1
            return y + self.mean

    model = net(Replacing)
    for i in range(10):
        run(model, data(i))
        run.see(model.mean)


@case("(eer{4}){6}")
def modules_freed_while_proven(run):
    for i in range(6):
        model = net()
        for _ in range(6):
            run(model, data(i))
        del model


@case("(e{6}r{6})+")
def modules_made_in_turn(run):
    for i in range(6):
        models = [net() for _ in range(3)]
        models[1].scale = float(i)
        for _ in range(4):
            for model in models:
                run(model, data(i))
        del models[1]
