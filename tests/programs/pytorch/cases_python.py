"""How Python programs hold state: what a call reads, counts, keeps."""

import contextvars
import dataclasses
import functools
import importlib
import os
import random
import sys
import tempfile
import types
from collections import ChainMap, Counter, UserDict, namedtuple
from typing import Any

import numpy

from small import CALLS, PHASES, F, Net, Run, case, changed_at, data, net, nn, torch

SETTINGS = {"scale": 1.0, "nested": {"add": [0.0]}}


@case("settings deep in containers of the standard library's classes (ChainMap, UserDict, Counter, namedtuple)")
def containers_of_all_kinds(run: Run) -> None:
    Pair = namedtuple("Pair", "low high")

    class Boxed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.chain = ChainMap({"a": 1.0}, {"a": 2.0, "b": 3.0})
            self.user, self.counter = UserDict(x=1.5), Counter("aab")
            self.pair, self.deep = Pair([1.0], {"v": (1, [2.0])}), types.SimpleNamespace(
                a=types.SimpleNamespace(b=[1.0])
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x) * self.chain["a"] + self.chain["b"] * self.user["x"]
            return y + self.counter["a"] + self.pair.low[0] + self.pair.high["v"][1][0] * self.deep.a.b[0]

    changes = [
        lambda m: m.chain.maps[0].pop("a", None),
        lambda m: m.chain.maps.append({"a": 9.0}),
        lambda m: m.user.data.update(x=m.user["x"] + 1),
        lambda m: m.counter.update("a"),
        lambda m: m.pair.low.__setitem__(0, m.pair.low[0] + 2),
        lambda m: m.pair.high["v"][1].insert(0, 5.0),
        lambda m: m.deep.a.b.__setitem__(slice(None), [3.0]),
        lambda m: m.chain.maps.reverse(),
    ]
    for change in changes:
        changed_at(run, lambda: net(Boxed), change, calls=11, phases=(7,))


@case("a dataclass of settings, frozen, with slots, changed by object.__setattr__ and by replace()")
def dataclasses_as_settings(run: Run) -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Frozen:
        scale: float = 1.0
        sizes: tuple = (1, 2)

    @dataclasses.dataclass
    class Open:
        inner: Any
        kind: str = "plain"

    class Set(Net):
        def __init__(self) -> None:
            super().__init__()
            self.settings = Open(Frozen())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x) * self.settings.inner.scale + self.settings.inner.sizes[1]
            return -y if self.settings.kind == "turned" else y

    def change(m: Any) -> None:
        object.__setattr__(m.settings.inner, "scale", m.settings.inner.scale + 1)

    def replace(m: Any) -> None:
        m.settings.inner = dataclasses.replace(m.settings.inner, sizes=(1, m.settings.inner.sizes[1] + 1))

    def turn(m: Any) -> None:
        m.settings.kind = "turned" if m.settings.kind == "plain" else "plain"

    for each in (change, replace, turn):
        changed_at(run, lambda: net(Set), each, phases=(3, 7))


@case("a property, __getattr__ and a descriptor of the class compute a setting; the class's are exchanged")
def computed_attributes(run: Run) -> None:
    class Descriptor:
        def __init__(self, value: float) -> None:
            self.value = value

        def __get__(self, instance: Any, owner: Any) -> float:
            return self.value * instance.base

    class Computed(Net):
        gain = Descriptor(2.0)
        base = 1.0

        @property
        def offset(self) -> float:
            return self.base + OFFSETS[0]

        def __getattr__(self, name: str) -> Any:
            return 0.125 if name == "missing" else super().__getattr__(name)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.gain + self.offset + self.missing

    def reset() -> Any:
        Computed.gain, Computed.base, OFFSETS[0] = Descriptor(2.0), 1.0, 0.5
        Computed.missing = property(lambda self: 0.5)
        del Computed.missing
        return net(Computed)

    changes = [
        lambda m: setattr(Computed.__dict__["gain"], "value", Computed.__dict__["gain"].value + 1),
        lambda m: setattr(Computed, "base", Computed.base + 0.5),
        lambda m: OFFSETS.__setitem__(0, OFFSETS[0] + 1),
        lambda m: setattr(m, "base", 3.0),
        lambda m: setattr(Computed, "missing", 7.0),
        lambda m: setattr(Computed, "gain", Descriptor(9.0)),
    ]
    for change in changes:
        changed_at(run, reset, change, calls=11, phases=(7,))


OFFSETS = [0.5]


@case("eval() of an expression, format() and getattr() by made-up names read globals")
def reading_by_text(run: Run) -> None:
    global EVALUATED
    EVALUATED = 1.0

    class Evaluating(Net):
        def __init__(self) -> None:
            super().__init__()
            self.expression, self.which, self.first_scale, self.other_scale = "EVALUATED * 2", "first", 1.0, 4.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x) * eval(self.expression)
            y = y + getattr(self, self.which + "_scale")
            return y * float("{0[scale]}".format(SETTINGS))

    def more(_: Any) -> None:
        global EVALUATED
        EVALUATED += 1

    SETTINGS["scale"] = 1.0
    changed_at(run, lambda: net(Evaluating), more, phases=(1, 7))
    changed_at(run, lambda: net(Evaluating), lambda m: setattr(m, "expression", "EVALUATED + 5"), phases=(7,))
    changed_at(run, lambda: net(Evaluating), lambda m: setattr(m, "which", "other"), phases=(7,))
    changed_at(run, lambda: net(Evaluating), lambda m: SETTINGS.update(scale=SETTINGS["scale"] + 1), phases=(7,))


EVALUATED = 1.0


@case("the module that defines a model is reloaded with another text, the old model goes on")
def module_reloaded(run: Run) -> None:
    text = (
        "import torch\nfrom torch import nn\nSCALE = {scale}\ndef helper(x):\n    return x * SCALE + {add}\n"
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)\n"
        "    def forward(self, x):\n        return helper(torch.tanh(self.b(torch.tanh(self.a(x)))))\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        try:
            path = os.path.join(folder, "corner_reloaded.py")
            for name, scale, add in (("first", 2.0, 0.0), ("second", 3.5, 1.0), ("third", 0.5, -2.0)):
                with open(path, "w") as file:
                    file.write(text.format(scale=scale, add=add) + f"# {name}\n")
                os.utime(path, (1e9, 1e9 + scale * 100))
                importlib.invalidate_caches()
                if name == "first":
                    module = importlib.import_module("corner_reloaded")
                    model = net(module.Model)
                else:
                    module = importlib.reload(module)
                new = net(module.Model, seed=3)
                for i in range(9):
                    run.see(model(data(i)), new(data(i)), label=name)
                module.SCALE += 1
                for i in range(4):
                    run.see(model(data(i)), new(data(i)), label=name)
        finally:
            sys.path.remove(folder)
            sys.dont_write_bytecode = before
            sys.modules.pop("corner_reloaded", None)


@case("hooks that come and go: pre-hooks with kwargs, always_call, prepend, one that takes itself away, on all levels")
def hooks_of_all_kinds(run: Run) -> None:
    class Keyword(Net):
        def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
            return super().forward(x) * scale

    def pre_kwargs(module: Any, args: Any, kwargs: Any) -> Any:
        return args, {**kwargs, "scale": kwargs.get("scale", 1.0) * 2}

    def post(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        return output + len(kwargs)

    features: dict[str, Any] = {}

    def keep(module: Any, args: Any, output: Any) -> None:
        features["last"] = output

    for where in (lambda m: m, lambda m: m.second):
        model = net(Keyword)
        handles: list[Any] = []
        for i in range(40):
            part = where(model)
            if i == 8:
                handles.append(part.register_forward_pre_hook(lambda m, a: (a[0] + 0.5, *a[1:])))
            if i == 14:
                handles.append(part.register_forward_hook(lambda m, a, o: o * 1.5, always_call=True))
            if i == 20:
                handles.append(part.register_forward_hook(keep, prepend=True))
            if i == 24 and part is model:
                handles.append(part.register_forward_pre_hook(pre_kwargs, with_kwargs=True))
                handles.append(part.register_forward_hook(post, with_kwargs=True))
            if i in (29, 33, 36) and handles:
                handles.pop(0).remove()
            if i == 30:

                def once(module: Any, args: Any, output: Any) -> Any:
                    handle.remove()
                    return output - 3

                handle = part.register_forward_hook(once)
            run.see(model(data(i), scale=2.0) if i % 3 == 0 else model(data(i)), features)
            features.clear()


@case("a hook of all modules, a context variable, a default argument that can be changed, in turn")
def ambient_state(run: Run) -> None:
    scale = contextvars.ContextVar("scale", default=1.0)

    class Ambient(Net):
        def forward(self, x: torch.Tensor, box: Any = [1.0]) -> torch.Tensor:  # noqa: B006
            return super().forward(x) * scale.get() + box[0]

    model = net(Ambient)
    for i in range(12):
        run.see(model(data(i)))
    for i in range(12):
        token = scale.set(2.0 + i // 4)
        run.see(model(data(i)))
        scale.reset(token)
    contexts = [contextvars.copy_context() for _ in range(3)]
    for number, context in enumerate(contexts):
        context.run(scale.set, number + 5.0)
    for i in range(18):
        run.see(contexts[i % 3].run(model, data(i)))
    for i in range(8):
        Ambient.forward.__defaults__[0][0] = float(i // 2)
        run.see(model(data(i)))
    handle = nn.modules.module.register_module_forward_hook(
        lambda m, a, o: o * 2 if isinstance(m, nn.LayerNorm) else None
    )
    for i in range(4):
        run.see(model(data(i)))
    handle.remove()
    for i in range(6):
        run.see(model(data(i)))


@case("module-wide things patched: F.gelu, torch.tanh, nn.Linear.forward, LayerNorm's class attribute; and put back")
def libraries_patched(run: Run) -> None:
    class Using(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm = nn.Linear(64, 64), nn.LayerNorm(64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(F.gelu(self.norm(self.a(x)))) * 3

    linear = nn.Linear.forward
    patches = [
        (F, "gelu", lambda x: x * 0.5),
        (torch, "tanh", lambda x: x.clamp(-1, 1)),
        (nn.Linear, "forward", lambda self, x: linear(self, x) + 1),
        (F, "layer_norm", lambda x, *_: x - 1),
        (torch.Tensor, "__mul__", lambda a, b: torch.mul(a, b) - 2),
    ]
    model = net(Using)
    for holder, name, patch in patches:
        for i in range(7):
            run.see(model(data(i)), label=f"before {name}")
        kept = holder.__dict__.get(name)
        setattr(holder, name, patch)
        try:
            for i in range(7):
                run.see(model(data(i)), label=name)
        finally:
            delattr(holder, name) if kept is None else setattr(holder, name, kept)
        for i in range(5):
            run.see(model(data(i)), label=f"after {name}")


@case("exceptions of many kinds thrown at some calls, also BaseException, from deep inside, with state half done")
def exceptions_at_some_calls(run: Run) -> None:
    class Stop(BaseException):
        pass

    class Checking(Net):
        def forward(self, x: torch.Tensor, limit: float) -> torch.Tensor:
            h = super().forward(x)
            x.add_(1)
            if limit < 0:
                raise (ValueError("negative") if limit > -2 else Stop("stop"))
            return self.second(F.pad(h, (0, 64))) * limit

    model = net(Checking)
    for i in range(3 * CALLS):
        x, limit = data(i), 1.0
        if i in (1, 4, 11, 20):
            limit = -1.0
        if i in (2, 13, 22):
            limit = -3.0
        try:
            run.see(model(x, limit), x)
        except ValueError as error:
            run.see("raised", error, x)
        except Stop as error:
            run.see("raised", error, x)
        if i in (15, 16):
            try:
                model(data(i, 4, 63), 1.0)
            except RuntimeError as error:
                run.see(type(error).__name__)


@case("functions of random's own generator, by names of their own: drawn from in training alone")
def random_by_its_functions(run: Run) -> None:
    chance, choose = random.random, random.choice

    class Dropping(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            if self.training and (chance() < 0.5 or numpy.random.rand() < 0.3):
                y = y * choose((2.0, 3.0))
            return y

    for phase in PHASES:
        model = net(Dropping)
        random.seed(phase), numpy.random.seed(phase)
        for i in range(CALLS):
            model.train(phase <= i < phase + 4)
            run.see(model(data(i)), chance() if i % 4 == 0 else 0)


@case("forward is wrapped as libraries do it: annotations of all kinds in it, replaced, and looked at")
def wrapped_forwards(run: Run) -> None:
    class Annotated(Net):
        def forward(self, x: torch.Tensor, scale: "int | None" = None, more: list[int] | None = None) -> torch.Tensor:
            return super().forward(x) * (scale or 1) + sum(more or ())

    def wrap(model: Any, factor: float) -> None:
        inner = model.forward

        @functools.wraps(inner)
        def forward(*given: Any, **named: Any) -> torch.Tensor:
            return inner(*given, **named) * factor

        model.forward = functools.update_wrapper(functools.partial(forward), inner) if factor > 1 else forward

    for phase in PHASES:
        model = net(Annotated)
        model.forward = functools.update_wrapper(functools.partial(model.forward, more=[1]), model.forward)
        for i in range(CALLS):
            if i == phase:
                wrap(model, 0.5)
            if i == phase + 3:
                wrap(model, 1.5)
            run.see(model(data(i)))
