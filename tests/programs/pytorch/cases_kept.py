"""Modules that their own calls change: kept tensors, weights that a hook computes, buffers that are replaced."""

import copy
import threading
import warnings
import weakref
from typing import Any

import bed
from small import CALLS, PHASES, F, Net, Run, case, data, net, nn, torch
from torch.nn.utils import remove_weight_norm, spectral_norm, weight_norm


class Keeping(Net):
    def __init__(self) -> None:
        super().__init__()
        self.map, self.given, self.parts = None, None, {}
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        self.map = torch.softmax(y, -1)
        self.given = x
        self.parts["first"] = y[:2]
        self.mean = self.mean * 0.9 + y.mean(0) * 0.1
        return y + self.mean


def seen(model: Any) -> Any:
    return model.map, model.given, model.parts, model.mean


class Vocoder(nn.Module):
    def __init__(self, norm: Any = weight_norm) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.into = norm(nn.Linear(64, 32))
            self.blocks = nn.ModuleList(norm(nn.Linear(32, 32)) for _ in range(3))
            self.out = norm(nn.Linear(32, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        for block in self.blocks:
            x = x + block(F.leaky_relu(x, 0.1))
        return torch.tanh(self.out(x))


@case("tensors that a module keeps are written to, replaced and taken away by others, at all times")
def kept_tensors(run: Run) -> None:
    def write(model: Any) -> None:
        model.map.mul_(2), model.mean.add_(1)

    def take(model: Any) -> None:
        model.map = model.parts = model.mean
        model.parts = {}

    def swap(model: Any) -> None:
        model.mean, model.given = model.mean.clone(), None

    def share(model: Any) -> None:
        model.mean = model.map[0].detach()

    for change in (write, take, swap, share):
        for phase in PHASES:
            model, earlier = net(Keeping), []
            for i in range(CALLS + 4):
                if i == phase + 2:
                    change(model)
                earlier.append(model.map)
                run.see(model(data(i)), seen(model))
            run.see(earlier)


@case("the same tensor is kept, returned and given back; results are written to by the caller")
def kept_results(run: Run) -> None:
    class Returning(Net):
        state: Any = None

        def forward(self, x: torch.Tensor) -> Any:
            y = super().forward(x) + (0 if self.state is None else self.state)
            self.state = y
            return y, self.state.view(-1), self

    model = net(Returning)
    for i in range(2 * CALLS):
        y, flat, same = model(data(i))
        run.see(y, flat, same is model, model.state is y)
        if i % 5 == 4:
            flat.mul_(0.1)
        if i % 7 == 6:
            run.see(model(y))


@case("weights made by hooks of weight_norm and spectral_norm; their parts change, are loaded, and the norm is removed")
def normalised_weights(run: Run) -> None:
    for norm in (weight_norm, spectral_norm):
        for phase in PHASES:
            torch.manual_seed(1)
            model = Vocoder(norm).to(bed.DEVICE).eval()
            state = {name: value * 1.5 for name, value in model.state_dict().items()}
            for i in range(CALLS + 6):
                if i == phase + 2:
                    (model.into.weight_g if norm is weight_norm else model.into.weight_orig).data.mul_(1.25)
                if i == phase + 5:
                    model.load_state_dict(state)
                if i == phase + 7 and norm is weight_norm:
                    remove_weight_norm(model.out)
                run.see(model(data(i)), model.blocks[1].weight)


@case("modules that keep: submodules swapped, hooks added, training switched, copied, in two threads")
def keeping_modules_change(run: Run) -> None:
    def swap(model: Any) -> None:
        model.second = nn.Linear(128, 128).to(model.first.weight.device)

    def hook(model: Any) -> None:
        model.third.register_forward_hook(lambda module, inputs, output: output * 2)

    def train(model: Any) -> None:
        model.train(not model.training)

    def replace(model: Any) -> None:
        model.forward = lambda x: Keeping.forward(model, x) - 1

    def attribute(model: Any) -> None:
        model.extra = [1, 2]

    for change in (swap, hook, train, replace, attribute):
        for phase in PHASES:
            model = net(Keeping)
            for i in range(CALLS + 4):
                if i == phase + 2:
                    torch.manual_seed(3)
                    change(model)
                run.see(model(data(i)), seen(model))
            other = copy.deepcopy(model)
            run.see(other(data(1)), model(data(1)))
    model, results = net(Keeping), []

    def work(number: int) -> None:
        with torch.no_grad():
            for i in range(6):
                results.append(model(data(number * 6 + i)).clone())

    for number in range(3):
        thread = threading.Thread(target=work, args=(number,))
        thread.start(), thread.join()
    run.see(results, seen(model))


@case("what a module keeps ends when it is replaced: weak references and finalizers tell")
def ends_of_kept_tensors(run: Run) -> None:
    model = net(Keeping)
    for i in range(CALLS):
        model(data(i))
        reference = weakref.ref(model.map)
        kept = weakref.ref(model.given)
        model(data(i))
        run.see(reference() is None, kept() is None)
        if i % 4 == 3:
            ended: list[int] = []
            weakref.finalize(model.map, ended.append, i)
            run.see(model(data(i)), ended)


@case("counters and logs beside what is kept: another state in each call")
def keeping_and_counting(run: Run) -> None:
    class Counting(Keeping):
        def __init__(self, every: int) -> None:
            super().__init__()
            self.every, self.log = every, []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            if self.count % self.every == 0:
                self.log.append(self.map)
            return super().forward(x) * (1 + self.count % 2)

    for every in (1, 3, 100):
        model = net(Counting, every)
        for i in range(CALLS + 6):
            run.see(model(data(i)), model.count, model.log[-2:], seen(model))
