"""Functions that are regions: what they keep, and what is changed under them: globals, closures, caches, objects that
they are methods of, themselves. See cases_functions.py."""

import contextlib
import contextvars
import functools
import io
import os
import sys
import threading
import time
import types
from types import SimpleNamespace
from typing import Any

import bed
from small import CALLS, Run, case, data, torch
from cases_functions import called, work

HERE = sys.modules[__name__]
COUNT, SCALE = 0, 1.0
SETTINGS = SimpleNamespace(scale=1.0, parts=[1.0, 2.0])
CACHE: dict = {}


def setting(name: str, value: Any) -> Any:
    return lambda: setattr(HERE, name, value)


def region_that_counts(x: torch.Tensor) -> torch.Tensor:
    global COUNT
    COUNT += 1
    return work(x) * (1.0 + COUNT % 2)


@case("a global counter, which the result hangs on")
def global_counter(run: Run) -> None:
    setting("COUNT", 0)()
    for i in range(2 * CALLS):
        run.see(region_that_counts(data(i)), COUNT)


def region_of_settings(x: torch.Tensor) -> torch.Tensor:
    return work(x) * SCALE * SETTINGS.scale + sum(SETTINGS.parts)


@case("globals that the program sets between calls: a number, an attribute, an item of a list")
def global_settings(run: Run) -> None:
    changes = {
        2: setting("SCALE", 2.0),
        5: setting("SCALE", 1.0),
        7: lambda: setattr(SETTINGS, "scale", 3.0),
        9: lambda: SETTINGS.parts.__setitem__(1, 5.0),
        11: setting("SETTINGS", SimpleNamespace(scale=1.0, parts=[1.0])),
    }
    called(run, region_of_settings, lambda i: (data(i),), changes)


def region_that_caches(x: torch.Tensor, number: int) -> torch.Tensor:
    key = (tuple(x.shape), number)
    if key not in CACHE:
        CACHE[key] = torch.linspace(0, number + 1, x.shape[-1], device=x.device)
    return work(x) + CACHE[key]


@case("a global dictionary of tensors by shape: hit, missed, emptied, its tensor written to and replaced")
def global_cache(run: Run) -> None:
    CACHE.clear()
    changes = {
        6: CACHE.clear,
        8: lambda: [value.add_(1) for value in CACHE.values()],
        10: lambda: CACHE.update({key: value * 2 for key, value in CACHE.items()}),
    }
    called(run, region_that_caches, lambda i: (data(i), i % 5 // 3), changes)


@functools.lru_cache(maxsize=2)
def region_table(length: int, device: Any) -> torch.Tensor:
    return work(torch.arange(length, dtype=torch.float32, device=device) * 0.01)


def region_with_table(x: torch.Tensor) -> torch.Tensor:
    return work(x) + region_table(x.shape[-1], x.device)


@case("functools.lru_cache: of a function that launches, and of one that is called by another")
def cached_functions(run: Run) -> None:
    region_table.cache_clear()
    changes = {6: region_table.cache_clear, 9: lambda: region_table(64, torch.device(bed.device(), 0)).add_(1)}
    lengths = (64, 64, 64, 64, 64, 64, 32, 16, 64)
    called(run, region_with_table, lambda i: (data(i, 4, lengths[i % 9]),), changes)
    for i in range(2 * CALLS):
        table = region_table(lengths[i % 9], torch.device(bed.device(), 0))
        run.see(table, table is region_table(lengths[i % 9], torch.device(bed.device(), 0)))


class Metrics:
    scale = 1.0
    made = 0

    def __init__(self) -> None:
        self.total, self.count, self.last = 0.0, 0, None
        self.running = torch.zeros(64, device=bed.device())

    def region_update(self, x: torch.Tensor) -> None:
        self.total += (work(x) ** 2).mean().item()
        self.count += 1

    def region_average(self, x: torch.Tensor) -> torch.Tensor:
        self.running.mul_(0.9).add_(work(x).mean(0), alpha=0.1)
        return self.running

    def region_keeps(self, x: torch.Tensor) -> torch.Tensor:
        y = work(x)
        if self.last is not None:
            y = y + self.last
        self.last = y
        return y * self.scale

    @staticmethod
    def region_static(x: torch.Tensor) -> torch.Tensor:
        return work(x) * Metrics.scale

    @classmethod
    def region_of_class(cls, x: torch.Tensor) -> torch.Tensor:
        cls.made += 1
        return work(x) * cls.scale + cls.made % 2


class Doubled(Metrics):
    scale = 2.0


@case("methods of a plain object: sums of numbers that the host reads, a running mean in place, the last result kept")
def methods_of_objects(run: Run) -> None:
    for kind in (Metrics, Doubled):
        metrics = kind()
        for i in range(CALLS):
            metrics.region_update(data(i % 3))
            y = metrics.region_average(data(i))
            z = metrics.region_keeps(data(i))
            run.see(metrics.total, metrics.count, y, y is metrics.running, z, metrics.last)
            if i == 8:
                metrics.running = torch.ones(64, device=bed.device())
                metrics.scale = 0.5


@case("static and class methods; attributes of the class change, and those of a derived one")
def methods_of_classes(run: Run) -> None:
    for i in range(2 * CALLS):
        Metrics.scale = 1.0 + (i > 8)
        Doubled.scale = 2.0 + (i > 15)
        run.see(Metrics.region_static(data(i)), Metrics.region_of_class(data(i)), Metrics.made)
        run.see(Doubled.region_of_class(data(i)), Doubled.made)


class Slotted:
    __slots__ = ("scale", "reads", "x")

    def __init__(self, x: torch.Tensor) -> None:
        self.scale, self.reads, self.x = 1.0, 0, x

    @property
    def factor(self) -> float:
        self.reads += 1
        return self.scale

    def __getattr__(self, name: str) -> float:
        return float(len(name))

    def region_run(self, y: torch.Tensor) -> torch.Tensor:
        return work(self.x + y) * self.factor + self.missing


@case("slots, a property that counts, names that are made up by __getattr__")
def methods_of_slotted_objects(run: Run) -> None:
    one = Slotted(data(100))
    for i in range(CALLS):
        if i == 7:
            one.scale = 2.0
        if i == 10:
            one.x = data(101)
        run.see(one.region_run(data(i)), one.reads)


def region_patched(x: torch.Tensor, scale: float = 1.0, *, shift: float = 0.0) -> torch.Tensor:
    return region_helper(x) * scale + shift


def region_helper(x: torch.Tensor) -> torch.Tensor:
    return work(x)


def other_helper(x: torch.Tensor) -> torch.Tensor:
    return work(x) * 3


@case("the function, what it calls, its code, its defaults are replaced between calls, and put back")
def functions_are_patched(run: Run) -> None:
    function, helper, code = region_patched, region_helper, region_helper.__code__
    changes = {
        2: setting("region_helper", other_helper),
        4: setting("region_helper", helper),
        7: lambda: setattr(function, "__defaults__", (2.0,)),
        8: lambda: function.__kwdefaults__.update(shift=1.0),
        9: lambda: setattr(helper, "__code__", other_helper.__code__),
        10: lambda: setattr(helper, "__code__", code),
        11: lambda: setattr(function, "__kwdefaults__", {"shift": 2.0}),
    }
    for calls in range(2):
        for i in range(CALLS):
            changes.get(i, lambda: None)()
            run.see(HERE.region_patched(data(i)))
        function.__defaults__, function.__kwdefaults__ = (1.0,), {"shift": 0.0}
    for i in range(CALLS):
        HERE.region_patched = (lambda x: function(x, 3.0)) if 4 <= i < 8 else function
        run.see(HERE.region_patched(data(i)))
    HERE.region_patched = function


def made(scale: float) -> Any:
    calls = 0

    def region_inside(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return work(x) * scale

    def region_free(x: torch.Tensor) -> torch.Tensor:
        return work(x) * scale

    def set_scale(value: float) -> None:
        nonlocal scale
        scale = value

    return region_inside, region_free, set_scale, lambda: calls


region_inside, region_free, set_scale, count_calls = made(1.0)


@case("closures: a counter in one, a number in another that is set from outside")
def closures_change(run: Run) -> None:
    for i in range(2 * CALLS):
        if i in (3, 9, 10, 18):
            set_scale(1.0 + i % 2 + i % 3)
        run.see(region_inside(data(i)), region_free(data(i)), count_calls())


def region_with_attributes(x: torch.Tensor) -> torch.Tensor:
    region_with_attributes.calls = getattr(region_with_attributes, "calls", 0) + 1
    return work(x) * region_with_attributes.scale


region_with_attributes.scale = 1.0


@case("attributes of the function itself: one is counted, one is set from outside")
def attributes_of_the_function(run: Run) -> None:
    for i in range(CALLS):
        region_with_attributes.scale = 1.0 + (i > 7)
        run.see(region_with_attributes(data(i)), region_with_attributes.calls)


def counted(function: Any) -> Any:
    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        call.calls += 1
        return function(*arguments, **keywords)

    call.calls = 0
    return call


@counted
def region_decorated(x: torch.Tensor) -> torch.Tensor:
    return work(x)


@torch.no_grad()
def region_without_gradients(x: torch.Tensor) -> torch.Tensor:
    return work(x) * SCALE


@case("decorators: one that counts calls, torch.no_grad(); called with and without gradients around")
def decorated_functions(run: Run) -> None:
    setting("SCALE", 1.0)()
    weight = data(50).requires_grad_()
    for i in range(2 * CALLS):
        with torch.set_grad_enabled(i % 3 == 0):
            y = region_decorated(weight * 1.0)
            z = region_without_gradients(weight)
            run.see(y, z, y.requires_grad, region_decorated.calls)
        if i == 15:
            setting("SCALE", 2.0)()


@functools.singledispatch
def region_dispatched(x: Any) -> torch.Tensor:
    return work(x)


@case("functools.singledispatch: a type is registered between calls")
def dispatched_functions(run: Run) -> None:
    for i in range(CALLS):
        if i == 7:
            region_dispatched.register(torch.Tensor)(lambda x: work(x) * 2)
        run.see(region_dispatched(data(i)))


CONTEXT: contextvars.ContextVar = contextvars.ContextVar("scale", default=1.0)
LOCAL = threading.local()


@contextlib.contextmanager
def scaled(by: float) -> Any:
    global SCALE
    before, SCALE = SCALE, by
    try:
        yield before
    finally:
        SCALE = before


def region_in_context(x: torch.Tensor) -> torch.Tensor:
    with contextlib.ExitStack() as stack:
        before = stack.enter_context(scaled(3.0))
        y = work(x) * SCALE
    return y * before * CONTEXT.get() + getattr(LOCAL, "shift", 0.0)


@case("context managers inside that set a global, context variables and thread locals set outside")
def contexts(run: Run) -> None:
    setting("SCALE", 1.0)()
    for i in range(2 * CALLS):
        if i in (8, 9):
            CONTEXT.set(float(i))
        LOCAL.shift = float(i > 12)
        with scaled(2.0) if i > 18 else contextlib.nullcontext():
            run.see(region_in_context(data(i)), SCALE)
    CONTEXT.set(1.0)


def region_by_environment(x: torch.Tensor) -> torch.Tensor:
    scale = float(os.environ.get("CORNERS_SCALE", "1"))
    flags = torch.get_default_dtype() == torch.float32, torch.are_deterministic_algorithms_enabled()
    return work(x) * scale + sum(flags)


@case("the environment, the default type and determinism are asked for, and set between calls")
def environment_of_functions(run: Run) -> None:
    changes = {
        5: lambda: os.environ.update(CORNERS_SCALE="2"),
        7: lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        9: lambda: torch.set_default_dtype(torch.float64),
        11: lambda: os.environ.pop("CORNERS_SCALE"),
    }
    called(run, region_by_environment, lambda i: (data(i),), changes)


def region_by_time(x: torch.Tensor, until: float) -> torch.Tensor:
    return work(x) * (2.0 if time.monotonic() > until else 1.0)


def region_that_prints(x: torch.Tensor) -> torch.Tensor:
    y = work(x)
    if COUNT % 4 == 0:
        print("step", COUNT)
    return y


@case("the clock is asked for; prints in some calls, by a global that the program counts")
def time_and_output(run: Run) -> None:
    for i in range(CALLS):
        run.see(region_by_time(data(i), time.monotonic() + (100 if i < 8 else -1)))
        setting("COUNT", i)()
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            y = region_that_prints(data(i))
        run.see(y, text.getvalue())


def region_in_thread(x: torch.Tensor, results: list) -> torch.Tensor:
    y = work(x)
    results.append(threading.current_thread().name[:6])
    return y * getattr(LOCAL, "scale", 1.0)


@case("one function in several threads, which have locals of their own")
def functions_in_threads(run: Run) -> None:
    found: dict = {}

    def loop(number: int) -> None:
        LOCAL.scale = 1.0 + number
        with torch.no_grad():
            for i in range(3 * CALLS):
                results: list = []
                found[number, i] = region_in_thread(data(i), results), results

    threads = [threading.Thread(target=loop, args=(number,), name=f"loop-{number}") for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for key in sorted(found):
        run.see(key, *found[key])


EMA = {"w": None, "b": None}


def region_average(values: dict, decay: float = 0.9) -> None:
    for name, value in values.items():
        if EMA[name] is None:
            EMA[name] = value.clone()
        EMA[name].lerp_(work(value), 1 - decay)


@case("moving averages in a global dictionary, which are replaced and written to by others")
def global_averages(run: Run) -> None:
    EMA.update(w=None, b=None)
    for i in range(2 * CALLS):
        if i == 9:
            EMA["b"] = data(70)
        if i == 15:
            EMA["w"].zero_()
        region_average({"w": data(i), "b": data(i + 1)})
        run.see(EMA, EMA["w"]._version)


def region_of_module_names(x: torch.Tensor) -> torch.Tensor:
    return work(x) * SETTINGS_MODULE.scale + getattr(SETTINGS_MODULE, NAME, 0.0)


SETTINGS_MODULE, NAME = types.ModuleType("corner_settings"), "shift"
SETTINGS_MODULE.scale = 1.0


@case("settings in a module made by hand, by a name that is a global")
def settings_in_a_module(run: Run) -> None:
    changes = {
        5: lambda: setattr(SETTINGS_MODULE, "scale", 2.0),
        8: lambda: setattr(SETTINGS_MODULE, "shift", 1.0),
        10: setting("NAME", "scale"),
    }
    called(run, region_of_module_names, lambda i: (data(i),), changes)
