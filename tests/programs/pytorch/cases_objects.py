"""Objects that are replaced, look alike, or hold what a call writes to; gradients."""

import enum
import functools
import gc
from dataclasses import dataclass
from typing import Any

import numpy

from small import CALLS, PHASES, Net, Run, case, changed_at, copy, data, net, nn, torch

# --- objects of the module that are replaced by equal ones


class Informed(Net):
    def __init__(self) -> None:
        super().__init__()
        self.info = {"n": 0, "list": [1, 2]}
        self.register_buffer("table", torch.arange(64.0))
        self.gain = nn.Parameter(torch.full((64,), 1.5), requires_grad=False)

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x) * self.gain + self.table, self.info, self.table


@case("returns a dict of the module, which is replaced by an equal one: the replay hands out the old one")
def module_dict_replaced_by_an_equal_one(run: Run) -> None:
    for phase in PHASES:
        model, kept = net(Informed), []
        for i in range(CALLS):
            if i in (phase, phase + 4):
                kept.append(model.info)
                model.info = copy.deepcopy(model.info)
            y, info, _ = model(data(i))
            run.see(y, info, info is model.info, info["list"] is model.info["list"])
        info["n"] = 7 + phase  # it is the module's
        run.see(model.info, kept)
        run.see(model(data(5)), model.info)


@case("returns a buffer of the module, which becomes another tensor object of the same memory")
def module_tensor_replaced_by_an_equal_one(run: Run) -> None:
    for phase in PHASES:
        model, kept = net(Informed), []
        for i in range(CALLS):
            if i in (phase, phase + 4):
                kept.append(model.table)
                model.table = model.table.detach()
            y, _, table = model(data(i))
            run.see(y, table, table is model.table)


@case("as module_dict_replaced_by_an_equal_one, and nobody keeps the old one: a freed object is handed out", late=True)
def module_dict_replaced_and_freed(run: Run) -> None:
    model = net(Informed)
    for i in range(CALLS):
        if i in (6, 9):
            model.info = copy.deepcopy(model.info)
            junk = [{"junk": j, "list": "none"} for j in range(500)]
            gc.collect()
        y, info, _ = model(data(i))
        run.see(y, info, info is model.info)
        del info
    run.see(len(junk), model.info)


@case("as module_tensor_replaced_by_an_equal_one, and nobody keeps the old one; the parameter too", late=True)
def module_tensor_replaced_and_freed(run: Run) -> None:
    class Giving(Informed):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x)[0], self.gain, self.table[8:16]

    model = net(Giving)
    for i in range(CALLS):
        if i in (6, 9):
            model.table = model.table.detach()
            model.gain = nn.Parameter(model.gain.data, requires_grad=False)
            junk = [torch.full((3,), float(j)) for j in range(200)]
            gc.collect()
        y, gain, part = model(data(i))
        run.see(y, gain, part, gain is model.gain, type(gain).__name__)
        del gain, part
    run.see(len(junk))


# --- which object it is, where module and globals both have it


class Mode:
    pass


FAST, SLOW = Mode(), Mode()
FACTORS = {FAST: 2.0, SLOW: -3.0}


def made() -> Any:
    def act(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)

    return act


ACT_A, ACT_B = made(), made()


class Moded(Net):
    def __init__(self) -> None:
        super().__init__()
        self.mode, self.act = FAST, ACT_A

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y * 2 if self.mode is FAST else y - 1


@case("self.mode is FAST, where FAST and SLOW are instances that look alike: flipped between calls")
def sentinels_that_look_alike(run: Run) -> None:
    def flip(model: Any) -> None:
        model.mode = SLOW if model.mode is FAST else FAST

    changed_at(run, lambda: net(Moded), flip)


@case("a global table is keyed by objects without values; the module's key is exchanged")
def table_keyed_by_objects(run: Run) -> None:
    class Keyed(Moded):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Net.forward(self, x) * FACTORS[self.mode]

    def flip(model: Any) -> None:
        model.mode = SLOW if model.mode is FAST else FAST

    changed_at(run, lambda: net(Keyed), flip)


@case("two functions of one factory that are told apart by identity")
def functions_that_look_alike(run: Run) -> None:
    class Acting(Moded):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.act(Net.forward(self, x))
            return y + 5 if self.act is ACT_B else y

    def flip(model: Any) -> None:
        model.act = ACT_B if model.act is ACT_A else ACT_A

    changed_at(run, lambda: net(Acting), flip)


REGISTRY = [[1.0], [1.0]]


@case("a module's list is, or is not, a global one of equal content")
def list_that_is_a_globals_too(run: Run) -> None:
    class Listed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.chosen = REGISTRY[0]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            return y * 4 if self.chosen is REGISTRY[0] else y * 0.5 if self.chosen is REGISTRY[1] else y

    def flip(model: Any) -> None:
        model.chosen = REGISTRY[1] if model.chosen is REGISTRY[0] else list(REGISTRY[0])

    changed_at(run, lambda: net(Listed), flip)


# --- what the call does to its arguments


@case("writes to a CPU tensor that is its argument, a fresh equal one at each call: the replay leaves it as it was")
def cpu_argument_is_written(run: Run) -> None:
    class Counting(Net):
        def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
            seen[0] += x.shape[0]
            seen[1:].fill_(7)
            return super().forward(x)

    model = net(Counting)
    for i in range(CALLS):
        seen = torch.zeros(3)
        run.see(model(data(i), seen), seen)


@case("lengths on the CPU, in an object, clamped in place; and memory that NumPy sees as well")
def cpu_lengths_in_an_argument(run: Run) -> None:
    @dataclass
    class Batch:
        x: torch.Tensor
        lengths: torch.Tensor

    class Clamping(Net):
        def forward(self, batch: Batch) -> torch.Tensor:
            batch.lengths.clamp_(max=3)
            batch.lengths.sub_(1)
            return super().forward(batch.x)

    model = net(Clamping)
    for i in range(CALLS):
        array = numpy.array([5, 2, 9, 1])
        batch = Batch(data(i), torch.from_numpy(array))
        run.see(model(batch), batch.lengths, array.tolist())


@case("a value of the device is copied into a CPU tensor that is the argument")
def device_value_into_a_cpu_argument(run: Run) -> None:
    class Telling(Net):
        def forward(self, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            out.copy_(y.round().clamp(0, 0).sum())  # the same value in each call
            out.add_(2)
            return y

    model = net(Telling)
    for i in range(CALLS):
        out = torch.full((), 9.0)
        run.see(model(data(i), out), out)


def callback(x: Any) -> Any:
    return x


@case("sets an attribute of a function that is its argument; the caller resets it before each call")
def attribute_of_a_function_argument(run: Run) -> None:
    class Noting(Net):
        def forward(self, x: torch.Tensor, note: Any) -> torch.Tensor:
            note.rows = x.shape[0]
            return super().forward(x)

    model = net(Noting)
    partial = functools.partial(callback, 1)
    for i in range(CALLS):
        callback.rows = 0
        run.see(model(data(i), callback), callback.rows)
    for i in range(CALLS):

        def fresh() -> None:
            pass

        fresh.rows = partial.rows = 0
        run.see(model(data(i), fresh), fresh.rows)
    for i in range(CALLS):
        partial.rows = 0
        run.see(model(data(i), partial), partial.rows)


class Name(str):
    uses = 0


class Step(int):
    pass


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


@case("sets attributes of arguments that are a str, an int, an enumeration's member")
def attributes_of_values(run: Run) -> None:
    class Noting(Net):
        def forward(self, x: torch.Tensor, value: Any) -> torch.Tensor:
            value.rows = x.shape[0]
            return super().forward(x)

    for make in (lambda: Name("a"), lambda: Step(3), lambda: Level.HIGH):
        model = net(Noting)
        for i in range(CALLS):
            value = make()
            value.rows = 0
            run.see(model(data(i), value), value.rows)


@case("fills the cache of a function that is its argument; the caller empties it before each call")
def cache_of_a_function_argument(run: Run) -> None:
    @functools.lru_cache(None)
    def scale(n: int) -> float:
        return n / 64

    class Scaling(Net):
        def forward(self, x: torch.Tensor, scale: Any) -> torch.Tensor:
            return super().forward(x) * scale(x.shape[-1])

    model = net(Scaling)
    for i in range(CALLS):
        scale.cache_clear()
        run.see(model(data(i), scale), tuple(scale.cache_info()))


@case("an argument tensor's requires_grad and grad are set by the call")
def grad_of_an_argument(run: Run) -> None:
    class Clearing(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.grad = None
            return super().forward(x)

    model = net(Clearing)
    for i in range(CALLS):
        x = data(i)
        x.requires_grad_()
        x.grad = torch.ones_like(x)
        run.see(model(x), x.grad)


# --- gradients


@case("the call zeroes its module's gradients (zero_grad inside of forward)")
def zero_grad_inside(run: Run) -> None:
    class Clearing(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.zero_grad()
            return super().forward(x)

    for set_to_none in (True, False):
        model = net(Clearing)
        if not set_to_none:
            model.zero_grad = functools.partial(nn.Module.zero_grad, model, set_to_none=False)
        for i in range(CALLS):
            for p in model.parameters():
                p.grad = torch.full_like(p, float(i + 1))
            run.see(model(data(i)), [p.grad for p in model.parameters()])


class Clipper(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, limit: float) -> torch.Tensor:
        return nn.utils.clip_grad_norm_(self.inner.parameters(), limit)


@case("a module that clips gradients: other gradient tensors at some calls, the old ones kept by the program")
def gradients_clipped_inside(run: Run) -> None:
    for phase in PHASES:
        model, kept = Clipper(net()), []
        for i in range(CALLS):
            for p in model.parameters():
                if p.grad is None or i in (phase, phase + 4):
                    kept.append(p.grad)
                    p.grad = torch.zeros_like(p)
                p.grad.fill_(0.5 + i)
            run.see(model(0.25), [p.grad for p in model.parameters()][:3])


@case("an optimizer's step inside of forward; gradients are new tensors at some calls")
def optimizer_steps_inside(run: Run) -> None:
    class Stepping(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner
            self.optimizer = torch.optim.SGD(inner.parameters(), lr=0.01)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.optimizer.step()
            return self.inner(x)

    for phase in PHASES:
        model, kept = Stepping(net()), []
        for i in range(CALLS):
            for p in model.parameters():
                if p.grad is None or i in (phase, phase + 4):
                    kept.append(p.grad)
                    p.grad = torch.zeros_like(p)
                p.grad.fill_(0.1 * (i + 1))
            run.see(model(data(i)), list(model.inner.parameters())[:2])


@case("registers a hook on its argument under no_grad; autograd uses the argument afterwards")
def hook_on_an_argument(run: Run) -> None:
    class Hooking(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.register_hook(double)
            return super().forward(x)

    model = net(Hooking)
    for i in range(CALLS):
        x = data(i).requires_grad_()
        y = model(x)
        with torch.enable_grad():
            (x * x).sum().backward()
        run.see(y, x.grad)


def double(grad: torch.Tensor) -> torch.Tensor:
    return grad * 2
