"""Models that are called by several threads. A tensor's end lets other threads run, wherever it comes."""
import ctypes
import gc
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from bed import bytes_of, case
from tiny import Net, data, net


def in_threads(work, count=6):
    """What work(number) returned in each thread, which switch as often as they can."""

    def run(number):
        with torch.no_grad():
            return work(number)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(run, range(count)))
    finally:
        sys.setswitchinterval(interval)


# What is known of those that are gone goes while others' calls come.
@case("")
def models_of_threads_come_and_go(run):
    def work(number):
        seen = []
        for i in range(60):
            model = Net().cuda().eval()
            for layer in (model.first, model.second):
                layer.weight.data = torch.ones(*layer.weight.shape, device="cuda") * (0.01 * (i + number))
                layer.bias.data = torch.ones(*layer.bias.shape, device="cuda") * number
            seen.extend(bytes_of(model(data(i))) for _ in range(6))
            del model
        return seen

    run.see(in_threads(work))
    gc.collect()


@case("")
def one_model_in_threads(run):
    models = [net() for _ in range(2)]

    def work(number):
        return [bytes_of(models[i % 2](data(i, rows=3 + i % 3))) for i in range(120)]

    run.see(in_threads(work))


class Reading(Net):
    def forward(self, x):
        y = super().forward(x)
        return y + 1 if x.sum().item() > 0 else y - 1


class Timed(Net):
    """Not replayed as a whole."""

    def __init__(self):
        super().__init__()
        self.inner = Net()

    def forward(self, x):
        time.time()
        return self.inner(super().forward(x))


# While one thread waits for a value the others call the same model.
@case("")
def models_that_read_in_threads(run):
    models = [net(Reading), net(Timed)]

    def work(number):
        return [bytes_of(models[i % 2](data(i + number, rows=3 + i % 3))) for i in range(120)]

    run.see(in_threads(work))


@case("")
def weights_change_in_threads(run):
    models = [net() for _ in range(6)]

    def work(number):
        model, seen = models[number], []
        for i in range(80):
            if i % 10 == 9:
                model.first.weight.data = model.first.weight.data * 1.5
            if i % 20 == 19:
                model.second.bias.data.mul_(2)
            seen.append(bytes_of(model(data(i))))
        return seen

    run.see(in_threads(work))


class Gated(Net):
    def forward(self, x, gate=None):
        y = super().forward(x)
        if gate is not None:
            gate.wait()
        return y


# Runs as always while another thread is in the same model, and is no reason to look at what is inside of it.
@case("e{12}e{2}r{4}")
def model_that_another_thread_is_in(run):
    model, gate = net(Gated), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(model, data(), gate)
        while not any(waiting.running() for _ in range(3)):
            time.sleep(0.01)
        time.sleep(0.1)
        for i in range(12):
            run(model, data(i))
        gate.set()
        run.see(waiting.result())
    for i in range(6):
        run(model, data(i))


# What another thread draws is not held against a checked call.
@case("e{12}", environment={"GRAPE_VALIDATE": "1", "GRAPE_LOG": "error"})
def random_numbers_of_another_thread(run):
    model, stop = net(), threading.Event()

    def draw():
        while not stop.is_set():
            random.random()

    with ThreadPoolExecutor(1) as pool:
        for i in range(12):
            if i == 5:
                pool.submit(draw)
            run(model, data(i))
        stop.set()


# Nothing that is observed tells of the other thread: the limit is a C extension's own.
@case("eeer{5}", refusals=("others_worked",), alone=True)
def another_thread_writes_while_a_call_is_looked_at(run):
    limit = torch._C._last_number()

    class Waiting(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("spare", torch.zeros(64))

        def forward(self, x):
            if torch._C._last_number() == 77:
                torch._C._set_last_number(78)
            while torch._C._last_number() == 78:
                pass
            return super().forward(x)

    model, driver, context = net(Waiting), ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    where, size = ctypes.c_uint64(model.spare.data_ptr()), ctypes.c_size_t(256)
    driver.cuCtxGetCurrent(ctypes.byref(context))

    def work(_):
        while torch._C._last_number() != 78:
            pass
        driver.cuCtxSetCurrent(context)
        driver.cuMemsetD8Async(where, 1, size, None)
        torch._C._set_last_number(limit)

    for i in range(8):
        if i == 1:
            torch._C._set_last_number(77)
            thread = threading.Thread(target=in_threads, args=(work, 1))
            thread.start()
        run(model, data(i))
    thread.join()
    run.see(model.spare)


# As servers do it. PyTorch's first work on a device makes a context current in its thread.
@case("eer{8}")
def a_thread_for_each_call(run):
    model, values = net(), [data(i) for i in range(10)]

    def work(x):
        with torch.no_grad():
            run(model, x)

    for x in values:
        thread = threading.Thread(target=work, args=(x,))
        thread.start()
        thread.join()
