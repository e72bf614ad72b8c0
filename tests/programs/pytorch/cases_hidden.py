"""What stands beside values: versions, views, overlapping memory, warnings, caches, lifetimes."""

import functools
import gc
import threading
import types
import warnings
import weakref
from typing import Any

import numpy

import bed
from small import CALLS, PHASES, Net, Run, Skip, case, changed_at, data, net, nn, torch


class Average(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(64))
        self.register_buffer("square", torch.zeros(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.lerp_(x.mean(0), 0.25)
        self.square.lerp_((x * x).mean(0), 0.25)
        return (x - self.mean) / (self.square + 1).sqrt() * torch.tanh(x).sum(-1, keepdim=True)


@case("a program keeps what it computed of a buffer as long as buffer._version stays: replays do not move it")
def cache_by_version(run: Run) -> None:
    model, known, cast = net(Average), -1, None
    for i in range(2 * CALLS):
        y = model(data(i))
        if model.mean._version != known:
            known, cast = model.mean._version, (model.mean * 2).half()
        run.see(y, cast)


@case("versions of an argument that the call writes to, and of what views of it see")
def version_of_an_argument(run: Run) -> None:
    class Writing(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.mul_(0.5).add_(1)
            return super().forward(x)

    model = net(Writing)
    for i in range(CALLS):
        x = data(i)
        run.see(model(x), x, x._version)


@case("autograd must notice that a no_grad call wrote to what it has saved: eager raises, a replay gives wrong grads")
def saved_for_backward_and_written(run: Run) -> None:
    class Writing(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.mul_(0.5)
            return super().forward(x)

    model = net(Writing)
    for i in range(CALLS):
        w = torch.ones(64, device=bed.device(), requires_grad=True)
        x = data(i)
        with torch.enable_grad():
            loss = (w * x).sum()  # saves x
        model(x)
        run.attempt(loss.backward)
        run.see(w.grad)


@case("the call returns a view of its input; a write to it must be noticed by autograd that has saved the input")
def version_of_a_returned_view(run: Run) -> None:
    class Viewing(Net):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x), x[:, :32]

    model = net(Viewing)
    for i in range(CALLS):
        w = torch.ones(64, device=bed.device(), requires_grad=True)
        x = data(i)
        with torch.enable_grad():
            loss = (w * x).sum()
        y, view = model(x)
        view.add_(1)
        run.see(y, x)
        run.attempt(loss.backward)
        run.see(w.grad)


@case("two results that are views of one: a write to the first is noticed where autograd has saved the second")
def versions_of_two_results(run: Run) -> None:
    class Splitting(Net):
        def forward(self, x: torch.Tensor) -> Any:
            y = super().forward(x)
            return y, y[:2], y.view(-1)

    model = net(Splitting)
    for i in range(CALLS):
        w = torch.ones(2, 64, device=bed.device(), requires_grad=True)
        y, part, flat = model(data(i))
        with torch.enable_grad():
            loss = (w * part).sum()
        flat.mul_(2)
        run.see(y, part)
        run.attempt(loss.backward)
        run.see(w.grad)


@case("a result that is a view made under no_grad must not be written to with gradients: eager raises")
def result_is_a_view_to_autograd(run: Run) -> None:
    class Part(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)[:, 8:40]

    model = net(Part)
    for i in range(CALLS):
        w = torch.ones(32, device=bed.device(), requires_grad=True)
        y = model(data(i))
        run.see(y, y._is_view(), y._base is None)
        with torch.enable_grad():
            run.attempt(lambda: y.mul_(w).sum().backward())
        run.see(w.grad)


# --- memory


@case("two arguments overlap though their storages are two (DLPack): proven so, then called with apart ones")
def overlap_through_dlpack(run: Run) -> None:
    class Reading(Net):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
            return super().forward(a[6:]) + 1, super().forward(b) * 2, torch.relu(a[7]) - 1

    def whole(i: int) -> torch.Tensor:
        return data(i, 8, 128)

    def tail(x: torch.Tensor) -> torch.Tensor:
        return torch.from_dlpack(x[4:])  # begins at another multiple of 512 bytes

    for first in (True, False):
        model = net(Reading, 128)
        for i in range(2 * CALLS):
            a = whole(i)
            together = (i < CALLS) == first
            b = tail(a) if together else tail(whole(500 + i))
            run.see(model(a, b), label=f"{'together' if together else 'apart'} {i}")


@case("as overlap_through_dlpack, and the call writes to one of them")
def overlap_through_dlpack_and_written(run: Run) -> None:
    class Writing(Net):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
            b.mul_(0.5)
            a[6:].add_(b[:2])
            return super().forward(a)

    for first in (True, False):
        model = net(Writing, 128)
        for i in range(2 * CALLS):
            a, other = data(i, 8, 128), data(500 + i, 8, 128)
            together = (i < CALLS) == first
            b = torch.from_dlpack((a if together else other)[4:])
            run.see(model(a, b), a, b, label=f"{'together' if together else 'apart'} {i}")


@case(
    "autocast's cache of cast weights: a graph keeps the cast ones alive, the weights change, a new context casts anew",
    mode="grad",
)
def autocast_cache_of_an_earlier_context(run: Run) -> None:
    model, kept = net(), []
    for context in range(3):
        with run.autocast():
            kept.append(model(data(50 + context).requires_grad_()).float().sum())  # never backward: saves cast weights
            with torch.no_grad():
                for i in range(CALLS):
                    run.see(model(data(i)), label=f"context {context} call {i}")
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1.25)
    run.see(kept)


@case("weights change inside of one autocast context: eager goes on with the cast ones; clear_autocast_cache ends it")
def weights_change_in_one_autocast_context(run: Run) -> None:
    for phase in PHASES:
        model = net()
        with run.autocast():
            for i in range(CALLS):
                if i == phase:
                    for p in model.parameters():
                        p.mul_(1.25)
                if i == phase + 4:
                    torch.clear_autocast_cache()
                run.see(model(data(i)), label=f"change at {phase}, call {i}")


@case("each call in an autocast context of its own, then several in one, while weights change")
def autocast_contexts_of_all_lengths(run: Run) -> None:
    model = net()
    for i in range(CALLS):
        with run.autocast():
            run.see(model(data(i)))
    for i in range(4):
        with run.autocast():
            for j in range(4):
                run.see(model(data(j)))
                if j == 1:
                    model.first.weight.mul_(1.5)
        with run.autocast(torch.float16), run.autocast(enabled=False):
            run.see(model(data(i)))
    for i in range(6):
        with run.autocast(cache_enabled=i % 2 == 0):
            run.see(model(data(i)), model(data(i + 1)))


@case("parametrize.cached(): a weight that was computed once is used until the context ends", mode="no_grad")
def parametrize_cached(run: Run) -> None:
    class Doubling(nn.Module):
        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w * 2 + 1

    model, kept = net(), []
    nn.utils.parametrize.register_parametrization(model.first, "weight", Doubling())
    original = model.first.parametrizations.weight.original
    for context in range(4):
        with nn.utils.parametrize.cached():
            kept.append(model.first.weight)
            for i in range(8):
                if i == 6:
                    original.mul_(1.1)
                run.see(model(data(i)), label=f"context {context} call {i}")
        run.see(model(data(20)))
        original.add_(0.01)
    with nn.utils.parametrize.cached():
        run.see(model(data(21)))


@case("len() of a storage decides; and an as_strided of torch.ops that is out of bounds in some calls")
def size_of_a_storage(run: Run) -> None:
    class Sized(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            return y * 2 if len(x.untyped_storage()) > 2000 else y

    class Strided(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(torch.ops.aten.as_strided.default(x, [8, 64], [64, 1], 0)).sum(0)

    class Copied(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(torch.as_strided_copy(x, [8, 64], [64, 1], 0)).sum(0)

    for kind in (Sized, Strided, Copied):
        model = net(kind)
        for i in range(2 * CALLS):
            x = data(i, 8, 64)[:4] if i < CALLS or i % 3 == 0 else data(i)
            run.attempt(model, x)


# --- what only C code keeps


@case("a traced function, a global, has a CPU tensor as its constant; the tensor is changed in place")
def constant_of_a_traced_function(run: Run) -> None:
    global TRACED
    scale = torch.tensor(2.0)
    TRACED = torch.jit.trace(lambda x: torch.relu(x * scale) + 1, data(0))

    class Using(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return TRACED(super().forward(x))

    model = net(Using)
    for i in range(2 * CALLS):
        if i in (1, 3, 8, 12, 20):
            scale.add_(0.5)
        run.see(model(data(i)), scale)


TRACED: Any = None


@case("warnings: catch_warnings resets what was shown, with the same filters: eager warns again in it")
def warning_shown_again(run: Run) -> None:
    class Warning_(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            warnings.warn("this is slow")
            return super().forward(x)

    with warnings.catch_warnings(record=True) as outer:
        warnings.simplefilter("default")
        model = net(Warning_)
        for i in range(2 * CALLS):
            run.see(model(data(i)), len(outer))
            if i % 5 == 4:
                with warnings.catch_warnings(record=True) as inner:
                    run.see(model(data(i)), [str(w.message) for w in inner])


TABLES: list[int] = []


@functools.lru_cache(maxsize=2)
def table_of(n: int) -> float:
    TABLES.append(n)
    return 1.0 + n / 100


@case("hits of an lru_cache: the program sees cache_info(), and what is thrown out next")
def hits_of_a_cache(run: Run) -> None:
    class Looking(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * table_of(x.shape[-1])

    TABLES.clear(), table_of.cache_clear()
    model = net(Looking)
    for i in range(CALLS):
        run.see(model(data(i)), label="a hit")
        run.see(table_of.cache_info().hits)
    for i in range(6):
        table_of(100)  # the older of the two now
        model(data(i))  # a hit: the younger
        table_of(200 + i)  # throws out 100, in eager
        run.see(list(TABLES), table_of.cache_info().currsize)


@case("NumPy's error state, which C code keeps in a context variable: an operator that must raise")
def numpy_error_state(run: Run) -> None:
    class Rooting(Net):
        def __init__(self) -> None:
            super().__init__()
            self.square = -1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            root = float(numpy.sqrt(self.square))
            return super().forward(x) * (1.0 if root != root else root)

    model = net(Rooting)
    for i in range(CALLS):
        with numpy.errstate(invalid="ignore"):
            run.see(model(data(i)))
        if i in (2, 8, 10):
            with numpy.errstate(invalid="raise"):
                run.attempt(model, data(i))


@case("triton: a hook of the kernel that is added later; skipped without triton or a compiler")
def hook_of_a_triton_kernel(run: Run) -> None:
    run.need_cuda()
    try:
        import triton_kernel

        y = triton_kernel.doubled(data(0))
    except Exception as error:
        raise Skip(f"triton: {type(error).__name__}: {str(error)[:80]}") from error
    run.see(y)

    class Using(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return triton_kernel.doubled(super().forward(x))

    model, seen = net(Using), []
    for i in range(2 * CALLS):
        if i == 9:
            triton_kernel.double_kernel.add_pre_run_hook(lambda *_, **__: seen.append(1))
        if i == 18:
            triton_kernel.double_kernel.pre_run_hooks.clear()
        run.see(model(data(i)), len(seen))


@case("the class of a model, its objects and its tensors die when the program gives them up")
def everything_dies_in_time(run: Run) -> None:
    class Base(Net):
        pass

    for round_ in range(2):

        class Local(Base):
            TABLE = {"a": [1]}

            def forward(self, x: torch.Tensor) -> Any:
                return super().forward(x), {"rows": x.shape[0], "table": self.TABLE}

        model = net(Local)
        refs = {"model": weakref.ref(model), "class": weakref.ref(Local), "weight": weakref.ref(model.first.weight)}
        ends: list[str] = []
        for i in range(CALLS):
            x = data(i)
            y, more = model(x)
            weakref.finalize(y, ends.append, f"y{i}"), weakref.finalize(x, ends.append, f"x{i}")
            run.see(y, more)
            del y, more, x
            run.see(list(ends))
        del model, Local
        gc.collect()
        run.see(round_, {name: ref() is None for name, ref in refs.items()}, len(Base.__subclasses__()))


@case("thousands of changes of attributes between two calls; the last one counts")
def thousands_of_changes_between_calls(run: Run) -> None:
    class Flagged(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x) * self.scale
            return -y if self.flag else y

    model = net(Flagged)
    for i in range(3 * CALLS):
        if i >= CALLS and i % 4 == 0:
            for j in range(1500):
                model.scale = 1.0 + j % 7
                model.first.bias.note = j
            model.scale = float(i)
        if i >= CALLS and i % 4 == 2:
            for j in range(1025):
                model.flag = not model.flag
        run.see(model(data(i)), model.scale, model.flag)


@case("attributes replaced as a whole: model.__dict__, vars(), object.__setattr__, __class__ of a part")
def dictionaries_replaced(run: Run) -> None:
    class Scaled(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.scale

    changes = [
        lambda m: setattr(m, "__dict__", {**m.__dict__, "scale": m.scale + 1}),
        lambda m: vars(m).__setitem__("scale", m.scale + 2),
        lambda m: object.__setattr__(m, "scale", m.scale * 3),
        lambda m: vars(m).update(scale=0.25),
        lambda m: setattr(m, "scale", -m.scale),
        lambda m: m.norm.__dict__.update(eps=0.5),
        lambda m: m._modules["norm"]._parameters["weight"].data.mul_(2),
        lambda m: setattr(m, "__dict__", dict(m.__dict__)),
    ]
    model = net(Scaled)
    for i in range(len(changes) * 5 + 5):
        if i >= 5 and i % 5 == 0:
            changes[i // 5 - 1](model)
        run.see(model(data(i)), model.scale)


@case("a module's thread-local, weak dictionary, mapping proxy: what C keeps of it changes")
def opaque_attributes(run: Run) -> None:
    class Held(Net):
        def __init__(self) -> None:
            super().__init__()
            self.table = {"scale": 2.0}
            self.proxy = types.MappingProxyType(self.table)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.proxy["scale"]

    class Local(Net):
        def __init__(self) -> None:
            super().__init__()
            self.local = threading.local()
            self.local.scale = 2.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.local.scale

    changed_at(run, lambda: net(Held), lambda m: m.table.update(scale=m.table["scale"] + 1), phases=(1, 7))
    changed_at(run, lambda: net(Local), lambda m: setattr(m.local, "scale", m.local.scale + 1), phases=(1, 7))
