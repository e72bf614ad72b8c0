"""Other threads, and functions that the device calls, while a call waits for a value that the host reads."""
import contextlib
import ctypes
import faulthandler
import sys
import threading
import time
import weakref

import torch
from bed import case
from tiny import Net, data, net

DRIVER = ctypes.CDLL("libcuda.so.1")
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
LONG = 100_000  # microseconds
SCALE = 1.0


class Reading(Net):
    """What it computes with comes behind the wait."""

    def forward(self, x):
        if x.sum() > -100:
            x = super().forward(x)
        return x * SCALE


def launch_python(function):
    """The device calls `function` when it comes to it, on a thread of the driver's. Returns what must live until then."""
    callback = HOST_FUNCTION(lambda _: function())
    if DRIVER.cuLaunchHostFunc(None, callback, None) != 0:
        raise RuntimeError("cuLaunchHostFunc")
    return callback


@contextlib.contextmanager
def at_most(seconds):
    """Whoever waits forever for the interpreter's lock is told where, and the process ends."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def changing(run, model, change, argument=data, calls=8, at=5):
    """While call number `at` waits, the device calls `change`."""
    with at_most(100):
        for i in range(calls):
            x = argument(i)
            if i == at:
                torch.delay(LONG)
                kept = launch_python(lambda: change(x))
            run(model, x)
    del kept


@case("eer{4}")
def another_thread_runs_in_the_wait(run):
    model, turns, done = net(Reading), [], threading.Event()

    def take_turns():
        while not done.wait(0.002):
            turns.append(1)

    def count_turns(x):
        before = len(turns)
        result = model(x)
        run.see(len(turns) - before > 10)
        return result

    for i in range(4):
        run(model, data(i))
    thread = threading.Thread(target=take_turns)
    thread.start()
    for i in range(2):
        torch.delay(2 * LONG)
        run(count_turns, data(i))
    done.set()
    thread.join()


@case("eer{6}")
def the_device_calls_python_in_the_wait(run):
    called = []
    changing(run, net(Reading), lambda x: called.append(1))
    run.see(called)


# The freed weights' memory is the next to be given out.
@case("eer{3}e{3}r{2}", refusals=("changed_in_the_wait",))
def weights_are_replaced_in_the_wait(run):
    model, other = net(Reading), torch.nn.Linear(16, 8).cuda().eval()

    def replace(x):
        model.second = other

    changing(run, model, replace, calls=10)


@case("eer{3}e{3}r{2}")
def weights_data_is_replaced_in_the_wait(run):
    model, other = net(Reading), torch.full((8, 16), 0.5, device="cuda")

    def replace(x):
        model.second.weight.data = other

    changing(run, model, replace, calls=10)


@case("eer{3}e{3}r{2}")
def an_attribute_changes_in_the_wait(run):
    class Scaling(Reading):
        def forward(self, x):
            return super().forward(x) * self.scale

    model = net(Scaling)

    def change(x):
        model.scale = 3.0

    changing(run, model, change, calls=10)


@case("eer{3}e{3}r{2}")
def a_global_changes_in_the_wait(run):
    def change(x):
        global SCALE
        SCALE = 3.0

    changing(run, net(Reading), change, calls=10)
    globals()["SCALE"] = 1.0


@case("eer{3}er{2}")
def an_argument_changes_in_the_wait(run):
    class Listed(Net):
        def forward(self, xs):
            return super().forward(xs[0]) if xs[0].sum() > -100 else xs[0]

    others = [data(70)]

    def change(xs):
        xs[0] = others.pop()

    changing(run, net(Listed), change, argument=lambda i: [data(i)])


@case("eer{3}er{2}")
def an_arguments_memory_changes_in_the_wait(run):
    other = data(71)

    def change(x):
        x.data = other

    changing(run, net(Reading), change)


@case("eer{3}er{2}")
def an_end_comes_to_be_seen_in_the_wait(run):
    """What the call lets go of behind the wait ends in the call, and a callback changes what comes next."""
    class Thing:
        pass

    class LettingGo(Net):
        def forward(self, xs):
            if xs[0].sum() > -100:
                xs[1] = None
            return super().forward(xs[0])

    kept = []

    def watch(xs):
        kept.append(weakref.ref(xs[1], lambda _: xs[0].add_(1)))

    changing(run, net(LettingGo), watch, argument=lambda i: [data(i), Thing()])


@case("eer{3}er{2}")
def random_numbers_are_seeded_in_the_wait(run):
    class Dropping(Reading):
        def forward(self, x):
            return torch.dropout(super().forward(x), 0.25)

    model = net(Dropping)
    torch.manual_seed(7801)
    for _ in range(100):  # seed and offset are like no other number
        torch.rand(4, device="cuda")
    changing(run, model, lambda x: torch.cuda.default_generators[0].manual_seed(7802))
    run.see(torch.cuda.default_generators[0].get_offset())


# The other thread's operators count as well.
@case("eer{3}.r{2}")
def the_same_model_is_called_in_the_wait(run):
    model, results, waiting = net(Reading), [], threading.Event()

    def work():
        with torch.no_grad():
            waiting.wait(100)
            for i in range(4):
                results.append(model(data(50 + i)).tobytes())

    def let_it_work(x):
        waiting.set()
        time.sleep(LONG / 1e6)

    thread = threading.Thread(target=work)
    thread.start()
    changing(run, model, let_it_work, calls=6)
    thread.join()
    run.see(results)
    for i in range(2):
        run(model, data(i))


def end_in(model):
    """The interpreter goes away while a thread that nobody waits for is in a call: it is ended there."""
    begun = threading.Event()

    def work():
        with torch.no_grad():
            while True:
                torch.delay(LONG)
                begun.set()
                model(data())

    class Ending:
        def __del__(self, sleep=time.sleep):
            sleep(5 * LONG / 1e6)

    sys.ending = Ending()  # let go after the interpreter has told its threads to end
    threading.Thread(target=work, daemon=True).start()
    begun.wait(100)


@case("eer{3}", alone=True)
def the_interpreter_ends_in_the_wait(run):
    model = net(Reading)
    for i in range(5):
        run(model, data(i))
    end_in(model)


@case("e{5}", alone=True)
def the_interpreter_ends_in_an_eager_call(run):
    class Sleeping(Net):
        def forward(self, x):
            time.sleep(LONG / 1e6)
            return super().forward(x)

    model = net(Sleeping)
    for i in range(5):
        run(model, data(i))
    end_in(model)
