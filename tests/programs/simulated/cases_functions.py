"""Functions that GRAPE_REGIONS names: of all kinds, and called in all ways. See cases_function_state.py."""
import functools
import os
import sys
import threading
import time

import torch
from bed import case
from tiny import Net, data, net, replay_inside
from cases_function_state import calling, give, region_in_a_closure
from torch import nn

import installed_helper  # noqa: E402
import installed_package.regions
import installed_package.settings

INLINES = sys.version_info[:2] == (3, 11)  # direct calls from Python code, which nobody sees then
MODEL = TABLE = LAST = None
SCALE, NAMES = 1.0, []


def setting(name, value):
    return lambda: globals().update({name: value})


def region_of_a_global(x):
    return MODEL(x) * SCALE


def region_that_keeps(x):
    global LAST
    LAST = MODEL(x)
    return LAST * 2


def region_that_prints(x):
    print("called")
    return MODEL(x)


# Once it is given up, the modules inside are regions; looked at when there is time.
@case("[ep]*p[ep]*", reason="calls print()")
def function_that_prints(run):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Net()

        def forward(self, x):
            return self.inner(x)

    globals().update(MODEL=lambda x, inner=net(Outer): inner(x) * 2)
    replay_inside(lambda: region_that_prints(data()))
    for i in range(12):
        run(region_that_prints, data(i))


class Calling(Net):
    def forward(self, x):
        print("called")
        return region_of_a_global(*(super().forward(x),))


# A module that is given up: the function inside is a region then.
@case("[ep]*p[ep]*", reason="calls print()")
def function_inside_of_a_module(run):
    globals().update(MODEL=net(), SCALE=1.0)
    model = net(Calling)
    replay_inside(lambda: model(data()))
    for i in range(12):
        run(model, data(i))


class Generating(Net):
    def region_generate(self, x, steps):
        for _ in range(steps):
            x = self(x)
        return x


# What hangs on a module is guarded as in a call of its own.
@case("eer{3}eeeer{4}eer{2}")
def method_of_a_module(run):
    model = net(Generating)
    for i in range(17):
        if i == 5:
            model.first.weight = nn.Parameter(torch.ones(16, 8, device="cuda") * 0.1)
        if i in (7, 11):
            model.train(i == 7)
        if i == 13:
            model.register_forward_hook(lambda module, args, result: result * 2)
        run(model.region_generate, data(i), steps=3)


# Long after the last import; as programs do that load a model first.
@case("eer{6}", validated=False)
def function_defined_late(run):
    main = sys.modules["__main__"]
    for _ in range(25):
        time.sleep(0.1)
        data()
    exec("def region_defined_late(x): return MODEL[0](x) * 2\n", main.__dict__)
    main.MODEL = [net()]
    time.sleep(0.15)
    data()
    for i in range(8):
        run(main.region_defined_late, data(i))


def region_that_raises(x):
    y = MODEL(x)
    if NAMES:
        raise ValueError("failed")
    return y


@case("eer{3}x{2}eer")
def function_that_raises_in_some_calls(run):
    calling(run, region_that_raises, {5: lambda: NAMES.append(1), 7: NAMES.clear}, 10, NAMES=NAMES)


def region_of_shapes(x):
    return x.shape[0] + 1


@case("[ep]{6}", refusals=("no_gpu_work",))
def function_that_launches_nothing(run):
    for i in range(6):
        run(region_of_shapes, data(i))


def region_that_yields(x):
    for i in range(2):
        yield MODEL(x) * i


@case("[epr]{4}", reason="is a generator", refusals=("deferred",))
def generator_function(run):
    globals().update(MODEL=net())
    for i in range(4):
        run(lambda x: list(region_that_yields(*(x,))), data(i))


async def region_that_waits(x):
    return MODEL(x)


# What runs later is no call of the function; the model that runs then is a region.
@case("[epr]{4}", reason="is a coroutine")
def coroutine_function(run):
    def drive(x):
        try:
            region_that_waits(*(x,)).send(None)
        except StopIteration as end:
            return end.value

    globals().update(MODEL=net())
    for i in range(4):
        run(drive, data(i))


def region_that_calls_itself(x, depth):
    return MODEL(region_that_calls_itself(x, depth - 1)) if depth else x * 2


@case("eer{4}")
def recursive_function(run):
    globals().update(MODEL=net())
    for i in range(6):
        run(region_that_calls_itself, data(i), 3)


class Engine:
    scale = 2.0

    def __init__(self):
        self.model, self.calls, self.kept = net(), 0, None

    def region_step(self, x):
        return self.model(x) * self.scale

    def region_of_moving(self, x):
        return self.model(x) * self.scale

    def region_keeping(self, x):
        y = self.model(x)
        self.kept = y * 2
        return y

    def region_counting(self, x):
        self.calls += 1
        return self.model(x)

    @staticmethod
    def region_static(x):
        return MODEL(x)

    @classmethod
    def region_class(cls, x):
        return MODEL(x) * cls.scale

    def __call__(self, x):
        return self.model(x)

    def __getattr__(self, name):
        raise AttributeError(name)


@case("eer{3}eer{2}r{3}eer{3}")
def method_is_a_region(run):
    engine, other = Engine(), Engine()
    for i in range(5):
        run(engine.region_step, data(i))
    engine.scale = 3.0
    for i in range(4):
        run(engine.region_step, data(i))
    other.scale = 3.0
    for i in range(3):
        run(other.region_step, data(i))
    other.scale = 4.0
    for i in range(5):
        run(other.region_step, data(i))


# They are the call's inputs. (A function of its own: after 16 replays of one it is asked whether they pay.)
@case("eer{2}r{4}")
def weights_of_an_argument_move(run):
    engine = Engine()
    for i in range(4):
        run(engine.region_of_moving, data(i))
    engine.model.first.weight = nn.Parameter(torch.ones(16, 8, device="cuda"), requires_grad=True)
    for i in range(4):
        run(engine.region_of_moving, data(i))


# Nothing is kept yet in the first call, which makes it another one.
@case("e{4}r{4}")
def method_keeps_a_tensor(run):
    engine = Engine()
    for i in range(8):
        run(engine.region_keeping, data(i))
        run.see(engine.kept)


@case("e{8}")
def method_counts(run):
    engine = Engine()
    for i in range(8):
        run(engine.region_counting, data(i))
    run.see(engine.calls)


@case("eer{3}eer{3}eer{3}")
def static_and_class_methods(run):
    globals().update(MODEL=net())
    for i in range(5):
        run(Engine.region_static, data(i))
    for i in range(5):
        run(Engine.region_class, data(i))
    Engine.scale = 5.0
    for i in range(5):
        run(Engine().region_class, data(i))
    Engine.scale = 2.0


def wrapping(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        with torch.no_grad():
            return function(*args, **kwargs)

    return wrapper


@wrapping
def region_decorated(x):
    return MODEL(x) * SCALE


@case("eer{3}eer{3}")
def decorated_function(run):
    calling(run, region_decorated, {5: setting("SCALE", 2.0)}, 10)


def region_called_directly(x):
    return MODEL(x) * SCALE


def directly(run, i):
    x, before = data(i), torch._C._operators_run()
    y = region_called_directly(x)
    run.calls.append(torch._C._operators_run() - before)
    run.see(y)


# As often as the interpreter needs to specialise the call. Where that is not seen, the model inside is a region.
@case("eep{42}" if INLINES else "eer{28}eer{12}")
def function_called_from_python_code(run):
    globals().update(MODEL=net(), SCALE=1.0)
    for i in range(44):
        if i == 30:
            globals().update(SCALE=2.0)
        directly(run, i)


def region_on_the_host(a, b):
    return [a + b, a * b]


@case("e{8}")
def function_without_gpu_work(run):
    for i in range(8):
        run(region_on_the_host, i % 2, 3)


def region_without_arguments():
    return MODEL(TABLE) * SCALE


@case("eer{3}eer{3}")
def function_without_arguments(run):
    globals().update(MODEL=net(), TABLE=data(), SCALE=1.0)
    for i in range(10):
        if i == 5:
            globals().update(SCALE=2.0)
        run(region_without_arguments)


@case("eer{3}eer{3}eer{3}")
def function_of_an_installed_package(run):
    installed_helper.SETTINGS["scale"], installed_helper.MODELS[:] = 1.0, [net()]
    for i in range(15):
        if i == 5:
            installed_helper.SETTINGS["scale"] = 2.0
        if i == 10:
            weight = installed_helper.MODELS[0].first.weight
            kept, weight.data = weight.data, weight.data * 2
        run(installed_helper.region_of_a_package, data(i))
    run.see(kept)


class Scaling(Net):
    def __init__(self):
        super().__init__()
        self.settings = installed_package.settings.Settings()

    def forward(self, x):
        return super().forward(x) * self.settings.scale


# Only the file of the function counts as the user's: the package's classes are as in any other package.
@case("eer{3}eer{3}")
def function_of_a_package_with_classes(run):
    installed_package.settings.SCALE, scaling = 1.0, net(Scaling)
    for i in range(10):
        if i == 5:
            installed_package.settings.SCALE = 2.0
        run(installed_package.regions.region_that_scales, data(i), scaling)


@case("eer{3}")
def module_of_a_package_with_a_named_function(run):
    scaling = net(Scaling)
    for i in range(5):
        run(scaling, data(i))


@case("eer{4}")
def function_in_two_threads(run):
    globals().update(MODEL=net(), SCALE=1.0)
    for i in range(6):
        run(region_of_a_global, data(i))
    results, barrier = [[], []], threading.Barrier(2)

    def work(number):
        with torch.no_grad():
            barrier.wait()
            for i in range(60):
                results[number].append(region_of_a_global(*(data(100 * number + i),)).tobytes())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.see(results)


def strictly(run, function, calls, change=None):
    """Calls that raise under Grape alone: the result is not looked at. Returns the errors' texts."""
    errors = []
    for i in range(calls):
        if i == 5 and change:
            change()
        x, before = data(i), torch._C._operators_run()
        try:
            function(x)
        except RuntimeError as error:
            run.calls.append(None)
            errors.append(str(error))
        else:
            run.calls.append(torch._C._operators_run() - before)
    return errors


# What a first call keeps might be a library's.
@case("eeex", environment={"GRAPE_STRICT": "1"})
def strict_function_that_keeps_its_result(run):
    globals().update(MODEL=net())
    for error in strictly(run, lambda x: region_that_keeps(*(x,)), 4):
        assert ":region_that_keeps is not replayed: keeps device memory that is not in its result" in error, error


@case("eerrrxeer", environment={"GRAPE_STRICT": "1"})
def strict_function_whose_closure_changes(run):
    model, table = net(), torch.ones(8, device="cuda")
    give(model, table)
    for error in strictly(run, lambda x: region_in_a_closure(*(x,)), 9, lambda: give(model, table, 2.0)):
        assert "region_in_a_closure is not replayed: the function itself is not as it was" in error, error


@case("e{6}", environment={"GRAPE_STRICT": "1"})
def strict_function_without_gpu_work(run):
    for i in range(6):
        run(region_on_the_host, 2, 3)
