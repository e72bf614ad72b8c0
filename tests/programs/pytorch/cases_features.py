"""Features of PyTorch: autocast's hidden state, switches that code reads and sets, generators."""

import contextlib
import tempfile
from typing import Any

import numpy
from torch.distributions import Distribution, Normal

import bed
from small import CALLS, PHASES, F, Net, Run, case, changed_at, copy, data, net, torch

NOTHING = contextlib.nullcontext()


class After(Net):
    """A Net, and what `after` makes of its result."""

    def __init__(self, after: Any) -> None:
        super().__init__()
        self.after = after

    def forward(self, x: torch.Tensor, *more: Any) -> Any:
        return self.after(super().forward(x), x, *more)


def made(after: Any) -> Any:
    return lambda: net(After, after)


@contextlib.contextmanager
def setting(set_: Any, value: Any, afterwards: Any) -> Any:
    set_(value)
    try:
        yield
    finally:
        set_(afterwards)


def switched(run: Run, make: Any, switch: Any, *more: Any) -> None:
    """From each phase on four calls are made under switch(True), the others under switch(False)."""
    for phase in PHASES:
        model = make()
        for i in range(CALLS):
            with switch(phase <= i < phase + 4):
                run.attempt(model, data(i), *more)


class Casting(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type):  # of the type that is set, whatever it is
            return super().forward(x).float()


def set_autocast_type(dtype: torch.dtype) -> None:
    torch.set_autocast_dtype(bed.device(), dtype)


@case("torch.set_autocast_dtype() while autocast is off; the forward enters autocast without naming a type")
def autocast_type_is_set(run: Run) -> None:
    types, before = (torch.bfloat16, torch.float16), torch.get_autocast_dtype(bed.device())
    for make in (lambda: net(Casting), made(lambda y, x: y.to(torch.get_autocast_dtype(x.device.type)))):
        switched(run, make, lambda on: setting(set_autocast_type, types[on], before))


@case("a context of autocast that is disabled passes its type on to the one that the forward enters")
def autocast_type_of_a_disabled_context(run: Run) -> None:
    types = (torch.bfloat16, torch.float16)
    switched(run, lambda: net(Casting), lambda on: torch.autocast(bed.device(), types[on], enabled=False))


@case("autocast inside of forward, called in a disabled context: the cast weights then outlive the call, and are stale")
def autocast_nests(run: Run) -> None:
    for before in (0, 9):
        model = net(Casting)
        for i in range(before):
            run.see(model(data(i)))
        for round_ in range(2):
            with torch.autocast(bed.device(), enabled=False):
                for i in range(10):
                    if i in (5, 8):
                        model.first.weight.mul_(1.5)
                    if i == 9:
                        torch.clear_autocast_cache()
                    run.see(model(data(i)), label=f"{before} calls before, context {round_}, call {i}")
            run.see(model(data(20)))


@case("a replayed model would have filled autocast's cache with the weights that another model uses later on")
def autocast_cache_filled_for_others(run: Run) -> None:
    one, other = net(), net(seed=2)
    other.first = one.first
    for context in range(8):
        with run.autocast():
            for i in range(6):
                run.see(one(data(i)), label=f"context {context} call {i}")
                if i in (2, 4):
                    one.first.weight.mul_(1.25)
            run.see(other(data(context, 3 + context, 64)))


@case("the forward asks for anomaly mode, the engine of quantised operators, whether tiny numbers are flushed to zero")
def switches_asked(run: Run) -> None:
    asking = made(lambda y, x: y * 2 if torch.is_anomaly_enabled() else y)
    switched(run, asking, lambda on: torch.autograd.set_detect_anomaly(on, check_nan=False))
    quantised, set_engine = torch.backends.quantized, lambda name: setattr(torch.backends.quantized, "engine", name)
    engines = [name for name in quantised.supported_engines if name != "none"]
    engine = made(lambda y, x: y * (2.0 if torch.backends.quantized.engine == engines[0] else 1.0))
    switched(run, engine, lambda on: setting(set_engine, engines[-on], quantised.engine))
    tiny = made(lambda y, x: y * (2.0 if float("1e-310") * 0.5 > 0 else 3.0))
    switched(run, tiny, lambda on: setting(torch.set_flush_denormal, on, False))


@case("hooks for saved tensors inside of forward are an error where the program has forbidden them")
def saved_tensor_hooks_forbidden(run: Run) -> None:
    class Hooked(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.clone, torch.Tensor.clone):
                return super().forward(x)

    forbid = torch.autograd.graph.disable_saved_tensors_hooks
    switched(run, lambda: net(Hooked), lambda on: forbid("not here") if on else NOTHING)


@case("a text of a tensor on the CPU is returned, torch.set_printoptions() called; distributions check, or do not")
def defaults_of_libraries(run: Run) -> None:
    def options(more: dict) -> None:
        torch.set_printoptions(profile="default", **more)

    telling = made(lambda y, x: (y, str(torch.tensor([1.23456789, 2.5e-5], device="cpu"))))
    for option in ({"precision": 2}, {"linewidth": 12}):
        switched(run, telling, lambda on: setting(options, option if on else {}, {}))
    spread = made(lambda y, x: Normal(y, y).variance + 1)  # a negative scale is not valid
    switched(run, spread, lambda on: setting(Distribution.set_default_validate_args, on, __debug__))


def set_invariants(on: bool) -> None:
    checks = torch.sparse.check_sparse_tensor_invariants
    checks.enable() if on else checks.disable()


# How it is set, how it is seen, what the forward sets it to, what the program does.
LEFT: dict[str, tuple] = {
    "anomaly": (torch.autograd.set_detect_anomaly, torch.is_anomaly_enabled, True, False),
    "autocast": (set_autocast_type, lambda: str(torch.get_autocast_dtype(bed.DEVICE)), torch.float16, torch.bfloat16),
    "sparse": (set_invariants, torch.sparse.check_sparse_tensor_invariants.is_enabled, True, False),
    "threads": (torch.set_num_threads, torch.get_num_threads, 2, 1),
    "warnings": (torch.set_warn_always, torch.is_warn_always_enabled, True, False),
    "print": (lambda n: torch.set_printoptions(precision=n), lambda: str(torch.tensor(1 / 3)), 2, 4),
    "validate": (Distribution.set_default_validate_args, lambda: Distribution._validate_args, False, __debug__),
    "denormals": (torch.set_flush_denormal, lambda: float("1e-310") * 0.5 > 0, True, False),
}


@case("the forward sets a switch and leaves it; the program sets it back before each call, and looks after it")
def settings_left_behind(run: Run) -> None:
    threads, dtype = torch.get_num_threads(), torch.get_autocast_dtype(bed.device())
    for name, (set_, ask, inside, outside) in LEFT.items():
        model = net(After, lambda y, x: (set_(inside), y)[1])
        for i in range(9):
            with setting(set_, outside, outside):
                y = model(data(i))
                seen = ask()
            run.see(y, seen, label=f"{name} {i}")
    torch.set_num_threads(threads), set_autocast_type(dtype)


@torch.jit.script
def blend(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.sigmoid(x * w + 0.3) * torch.tanh(x - w)
    return (y + x.cos() * 0.7 - w.exp() * 0.01).pow(2) + y / 3


@torch.jit.script
def apart(x: torch.Tensor, w: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    later = torch.jit.fork(blend, x, w)
    total.add_(x.sum(0))
    return torch.jit.wait(later) + torch.tanh(w)


@case("scripted functions: other executors and fusers, shapes met again, work that another thread launches")
def scripted_functions(run: Run) -> None:
    model, forking = net(After, lambda y, x: blend(y, x)), net(After, lambda y, x, total: apart(y, x, total))
    total = torch.zeros(64, device=bed.device())
    for i in range(4 * CALLS):
        x = data(i, 4 if i < 20 else 4 + i % 5, 64)
        with torch.jit.optimized_execution(i not in (10, 11, 35)):
            with torch.jit.fuser("fuser0") if i in (14, 15, 40) else NOTHING:
                run.see(model(x))
        run.see(forking(x, total), total)


@case("the forward maps a file into a tensor (torch.from_file); the file is written anew between calls")
def file_mapped_in_the_call(run: Run) -> None:
    with tempfile.NamedTemporaryFile() as file:
        path = file.name
        model = made(lambda y, x: y + torch.from_file(path, size=64).to(x.device))
        write = lambda value: numpy.full(64, value, dtype=numpy.float32).tofile(path)  # noqa: E731
        switched(run, model, lambda on: setting(write, 2.0 * on, 0.0))


@case("a copy of the default generator is made in the call, and drawn from: the default one's state is read, not moved")
def generator_copied_in_the_call(run: Run) -> None:
    def noisy(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        default = torch.cuda.default_generators[0] if x.is_cuda else torch.default_generator
        return y + torch.rand(x.shape, device=x.device, generator=copy.deepcopy(default))

    changed_at(run, made(noisy), lambda _: run.seed(17))
    changed_at(run, made(noisy), lambda _: torch.rand(3, device=bed.device()))


@case("as generator_copied_in_the_call, with the host's generator: what it gives is copied to the device")
def host_generator_copied_in_the_call(run: Run) -> None:
    def noisy(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return y + torch.randn(64, generator=copy.deepcopy(torch.default_generator), device="cpu").to(x.device)

    changed_at(run, made(noisy), lambda _: torch.randn(2, device="cpu"))


@case("random operators of many kinds: each moves the offset by another amount, some by the size of the device")
def random_operators(run: Run) -> None:
    kinds = [
        lambda y: (torch.poisson(y * 4), torch.binomial(torch.full_like(y, 9.0), y), torch._standard_gamma(y + 1)),
        lambda y: (torch.bernoulli(y), y.clone().random_(0, 1 << 40), y.clone().geometric_(0.4)),
        lambda y: (y.clone().cauchy_(), y.clone().log_normal_(), F.gumbel_softmax(y, hard=True)),
        lambda y: (F.dropout1d(y[None], 0.3), F.feature_alpha_dropout(y, 0.2, True), F.rrelu(y - 0.5, training=True)),
        lambda y: F.fractional_max_pool2d(y.view(1, 4, 8, 8), 2, output_size=3),
        lambda y: (torch.randperm(y.shape[0] * 50, device=y.device), torch.randint_like(y, 9)),
    ]
    for number, kind in enumerate(kinds):
        model = net(After, lambda y, x: kind(torch.sigmoid(y)))
        for i in range(CALLS):
            if i in (7, 11):
                run.seed(i)
            run.see(model(data(i)), torch.rand(2, device=bed.device()), label=f"kind {number} call {i}")
