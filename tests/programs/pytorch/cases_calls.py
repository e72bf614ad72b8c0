"""How and from where a module is called, and what happens to it in between."""

import asyncio
import copy
import enum
import gc
import io
import os
import pickle
import sys

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy

import bed
from small import CALLS, PHASES, Net, Run, case, changed_at, data, net, nn, torch

SETTINGS = {"scale": 1.0, "nested": {"add": [0.0]}}


@case("called while an exception is handled, in finally, in a generator, in coroutines, in a __del__, in a comparison")
def called_from_odd_places(run: Run) -> None:
    model, results = net(), []

    class Dying:
        def __init__(self, i: int) -> None:
            self.i = i

        def __del__(self) -> None:
            results.append(model(data(self.i)))

        def __lt__(self, other: Any) -> bool:
            results.append(model(data(self.i)))
            return self.i < other.i

    def generate() -> Any:
        for i in range(8):
            x = yield model(data(i))
            run.see(model(x if x is not None else data(20)))

    async def answer(i: int) -> Any:
        with torch.no_grad():
            y = model(data(i))
            await asyncio.sleep(0)
            return model(y)

    async def answers() -> Any:
        return await asyncio.gather(*(answer(i) for i in range(10)))

    for i in range(CALLS):
        run.see(model(data(i)))
    for i in range(6):
        try:
            raise ValueError(i)
        except ValueError:
            run.see(model(data(i)))
        finally:
            run.see(model(data(i + 1)))
    generator = generate()
    run.see(next(generator))
    for i in range(6):
        run.see(generator.send(data(30 + i)))
    run.see(asyncio.run(answers()))
    Dying(3), sorted(Dying(i) for i in (5, 2, 4))
    gc.collect()
    run.see(results)


@case("a module that calls itself with another depth; one that is called many times in its parent; shared parts")
def recursion_and_sharing(run: Run) -> None:
    class Tree(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x: torch.Tensor, depth: int) -> torch.Tensor:
            if depth == 0:
                return torch.tanh(x)
            return self(self.left(x), depth - 1) + self(self.right(x), depth - 1)

    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = Net()
            self.parts = nn.ModuleList([self.part, Net(), self.part])
            self.print_ = False

        def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
            if self.print_:
                print("", end="", file=sys.stderr)  # so that the parts are replayed by themselves
            for part in self.parts:
                x = part(x) + part(x * 0.5)
            return sum(self.part(x + j) for j in range(n))

    tree, parent = net(Tree), net(Parent)
    for i in range(18):
        run.see(tree(data(i), 2 if i % 4 else 3))
    for i in range(24):
        parent.print_ = i >= 12
        run.see(parent(data(i), 2 + i % 2))
    parent.parts[1] = parent.part
    for i in range(8):
        run.see(parent(data(i), 2))


@case("deepcopy and pickle of a model after its proofs; all of them are used, and changed one by one")
def copies_of_a_proven_model(run: Run) -> None:
    model = net()
    for i in range(9):
        run.see(model(data(i)))
    twin = copy.deepcopy(model)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    loaded = net(seed=9)
    loaded.load_state_dict(torch.load(io.BytesIO(buffer.getvalue()), map_location=bed.device()))
    pickled = pickle.loads(pickle.dumps(model))
    models = [model, twin, loaded, pickled]
    for i in range(28):
        if i % 7 == 6:
            with torch.no_grad():
                models[i // 7].second.bias.add_(1)
            models[i // 7].scale = i
        run.see(*(m(data(i)) for m in models))
    shallow = copy.copy(model)
    for i in range(8):
        if i == 4:
            shallow.first = copy.deepcopy(shallow.second)
            shallow.first, shallow.second = shallow.second, shallow.second
        run.attempt(shallow, data(i))
        run.attempt(model, data(i))


@case("models come and go at the same addresses with other weights; thousands of short-lived modules")
def models_at_the_same_place(run: Run) -> None:
    for i in range(12):
        model = net(seed=i)
        for j in range(5):
            run.see(model(data(j)))
        del model
    gc.collect()
    total = 0.0
    layer = nn.Linear(64, 64).to(bed.device())
    with torch.no_grad():
        layer.weight.fill_(0.01), layer.bias.zero_()
    for i in range(600):
        wrapper = nn.Sequential(layer, nn.Tanh() if i % 3 else nn.ReLU())
        y = wrapper(data(i % 7))
        total = y.sum() + total
    run.see(total)


@case("surgery: parts replaced, inserted, removed, reordered, buffers registered and deregistered after proofs")
def surgery(run: Run) -> None:
    def make() -> Any:
        return nn.Sequential(
            nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64)
        )

    def insert(m: Any) -> None:
        m.insert(2, nn.ReLU())

    def turn(m: Any) -> None:
        items = list(m._modules.items())
        m._modules.clear()
        m._modules.update(reversed(items))

    def extend(m: Any) -> None:
        torch.manual_seed(7)
        m.extend([nn.Linear(64, 64).to(bed.device()), nn.Sigmoid()])

    def rename(m: Any) -> None:
        m._modules["z"] = m._modules.pop(next(iter(m._modules)))

    def shared(m: Any) -> None:
        m[0] = m[-1]

    changes = [insert, turn, extend, rename, shared, lambda m: m.pop(0), lambda m: m.__delitem__(slice(1, 2))]
    for change in changes:
        changed_at(run, lambda: net(make), change, calls=12, phases=(7,))

    class Buffered(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            for name, buffer in self.named_buffers():
                y = y + buffer * len(name)
            return y

    model = net(Buffered)
    for i in range(30):
        if i == 8:
            model.register_buffer("one", torch.ones(64, device=bed.device()))
        if i == 14:
            model.register_buffer("extra", torch.full((64,), 2.0, device=bed.device()), persistent=False)
        if i == 20:
            del model.one
        if i == 25:
            model.extra = None
        run.see(model(data(i)))


@case("modules with __slots__, __call__, __eq__, __hash__, __bool__, __len__ of their own; forward a partial, static")
def modules_of_odd_classes(run: Run) -> None:
    class Odd(Net):
        __slots__ = ("extra",)

        def __init__(self) -> None:
            super().__init__()
            self.extra = 2.0

        def __call__(self, x: torch.Tensor, *more: Any) -> Any:
            CALLED.append(len(more))
            return super().__call__(x) * self.extra, len(CALLED)

        def __eq__(self, other: Any) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

        def __bool__(self) -> bool:
            return False

        def __len__(self) -> int:
            return 0

    class Static(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(64, 64) / 8)

        @staticmethod
        def forward(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.tanh(x @ w) @ w) - 1

    CALLED.clear()
    model, other, static = net(Odd), net(Odd, seed=5), net(Static)
    for i in range(16):
        if i in (5, 11):
            model.extra += 1
        run.see(model(data(i), 1), other(data(i)), static(data(i), static.w), static(data(i), w=static.w * 2))
    bound = net()
    inner = net(seed=8)
    bound.forward = torch.no_grad()(lambda x, k=2.0: inner.forward(x) * k)
    for i in range(16):
        if i == 6:
            bound.forward = inner.forward
        if i == 11:
            del bound.forward
        run.see(bound(data(i)))


CALLED: list[int] = []


@case("results that hold closures, iterators, lazily computed things, the module itself, its methods")
def results_of_odd_kinds(run: Run) -> None:
    class Giving(Net):
        def forward(self, x: torch.Tensor, kind: str) -> Any:
            y = super().forward(x)
            if kind == "closure":
                return lambda z: z + y
            if kind == "iterator":
                return iter([y, y * 2])
            if kind == "generator":
                return (part for part in y.unbind(0))
            if kind == "map":
                return map(torch.neg, [y, x])
            if kind == "module":
                return self, y
            if kind == "method":
                return self.first.forward, y
            if kind == "partial":
                return torch.add, y
            if kind == "set":
                return {1, 2}, y
            return None

    for kind in ("closure", "iterator", "generator", "map", "module", "method", "partial", "set", "none"):
        model = net(Giving)
        for i in range(7):
            result = model(data(i), kind)
            if kind == "closure":
                result = result(data(1))
            elif kind in ("iterator", "generator", "map"):
                result = list(result)
            elif kind == "module":
                result = (result[0] is model, result[1])
            elif kind in ("method", "partial"):
                result = (result[0](result[1]) if kind == "method" else result[0](result[1], 1), result[1])
            run.see(result, label=kind)


@case("arguments of many kinds, in other orders, missing, None, equal but of another type")
def arguments_of_many_kinds(run: Run) -> None:
    class Many(Net):
        def forward(self, x: torch.Tensor, a: Any = 1, *more: Any, flag: Any = None, **options: Any) -> torch.Tensor:
            y = super().forward(x) * (2 if a is True else 3 if type(a) is int else 4 if isinstance(a, float) else 5)
            y = y + (repr(a) == "-0.0") + len(more) + (10 if flag is None else 20 if flag == 0 else 30)
            for number, (name, value) in enumerate(options.items()):
                y = y * (number + 2) + (len(name) if value is None else float(value))
            return y

    sets = [
        ((1,), {}),
        ((True,), {}),
        ((1.0,), {}),
        ((-0.0,), {}),
        ((0.0,), {}),
        ((float("nan"),), {}),
        ((10**30,), {}),
        ((), {}),
        ((), {"a": 1}),
        ((1, 2, 3), {}),
        ((1,), {"flag": None}),
        ((1,), {"flag": False}),
        ((1,), {"flag": 0}),
        ((), {"p": 1, "qq": 2}),
        ((), {"qq": 2, "p": 1}),
        ((), {"p": None}),
        ((numpy.float64(1.0),), {}),
        ((numpy.int64(1),), {}),
        (("x",), {}),
        ((1 + 0j,), {}),
    ]
    model = net(Many)
    for round_ in range(6):
        for number, (args, kwargs) in enumerate(sets):
            run.see(model(data(round_), *args, **kwargs), label=f"arguments {number} round {round_}")


@case("NumPy arrays, scalars and bytes in the module's settings, changed in place")
def numpy_in_settings(run: Run) -> None:
    class Arrays(Net):
        def __init__(self) -> None:
            super().__init__()
            self.scales, self.one = numpy.array([1.0, 2.0]), numpy.float32(0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * float(self.scales[1]) + float(self.one) + float(NUMPY_TABLE[0])

    class Scalar(Net):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = numpy.float64(0.5), numpy.int32(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.one.item() + int(self.two)

    changed_at(run, lambda: net(Arrays), lambda m: m.scales.__setitem__(1, m.scales[1] + 1), phases=(1, 7))
    changed_at(run, lambda: net(Arrays), lambda m: NUMPY_TABLE.__setitem__(0, NUMPY_TABLE[0] + 1), phases=(1, 7))
    changed_at(run, lambda: net(Scalar), lambda m: setattr(m, "one", m.one + 1), phases=(1, 7))
    changed_at(run, lambda: net(Scalar), lambda m: setattr(m, "two", numpy.int32(m.two + 1)), phases=(1, 7))


NUMPY_TABLE = numpy.zeros(2)


@case("the environment, sys.argv and the working folder are read by the call, and changed by the program")
def surroundings(run: Run) -> None:
    class Reading(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x) * float(os.environ.get("HUNT_SCALE", "1"))
            return y + len(sys.argv) + ("HUNT_ADD" in os.environ) + float(os.getenv("HUNT_MORE") or 0)

    def change(_: Any) -> None:
        os.environ["HUNT_SCALE"] = str(float(os.environ.get("HUNT_SCALE", "1")) + 1)

    for phase in PHASES:
        for name in ("HUNT_SCALE", "HUNT_ADD", "HUNT_MORE"):
            os.environ.pop(name, None)
        changed_at(run, lambda: net(Reading), change, phases=(phase,), calls=9)
        changed_at(
            run, lambda: net(Reading), lambda _: os.environ.__setitem__("HUNT_ADD", "1"), phases=(phase,), calls=9
        )
        changed_at(run, lambda: net(Reading), lambda _: os.putenv("HUNT_MORE", "3"), phases=(phase,), calls=9)
    model, argv = net(Reading), sys.argv
    for i in range(16):
        if i == 8:
            sys.argv = [*argv, "more"]
        if i == 12:
            sys.argv.append("another")
        run.see(model(data(i)))
    sys.argv = argv


@case("several threads, one after the other and together, with models that count, read and change")
def threads_in_turn(run: Run) -> None:
    models = [net(seed=s) for s in range(3)]

    def answer(i: int) -> torch.Tensor:
        with torch.no_grad():
            return models[i % 3](data(i))

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        for i in range(24):
            run.see((one if i % 2 else two).submit(answer, i).result())
    with ThreadPoolExecutor(4) as pool:
        for round_ in range(4):
            run.see(list(pool.map(answer, range(24))))
            with torch.no_grad():
                models[round_ % 3].first.weight.mul_(1.1)


@case("flags of an enumeration and of a class held by the class of the model, exchanged while calls are replayed")
def flags_of_classes(run: Run) -> None:
    class Kind(enum.Flag):
        NONE = 0
        DOUBLE = 1
        SHIFT = 2

    class Config:
        kind = Kind.NONE
        limits = [1.0]

        class Inner:
            add = 0.0

    class Flagged(Net):
        config = Config

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            if Kind.DOUBLE in self.config.kind:
                y = y * 2
            if Kind.SHIFT in self.config.kind:
                y = y + 1
            return y * self.config.limits[0] + self.config.Inner.add

    def reset() -> Any:
        Config.kind, Config.limits, Config.Inner.add, Flagged.config = Kind.NONE, [1.0], 0.0, Config
        return net(Flagged)

    for change in (
        lambda m: setattr(Config, "kind", Config.kind | Kind.DOUBLE | Kind.SHIFT),
        lambda m: Config.limits.__setitem__(0, 3.0),
        lambda m: setattr(Config.Inner, "add", 2.5),
        lambda m: setattr(m, "config", type("Other", (Config,), {"limits": [7.0]})),
        lambda m: setattr(Flagged, "config", type("Other", (Config,), {"kind": Kind.SHIFT})),
    ):
        changed_at(run, reset, change, calls=11, phases=(1, 7))
