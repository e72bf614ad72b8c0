"""Work of other streams and threads while a call is looked at, which copies memory and puts it back."""
import ctypes
import threading

import torch
from bed import case
from tiny import Net, data, net

DRIVER = ctypes.CDLL("libcuda.so.1")
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def side_stream():
    """One that the default stream does not wait for, as PyTorch's are."""
    stream = ctypes.c_void_p()
    DRIVER.cuStreamCreate(ctypes.byref(stream), 1)
    return torch.cuda.Stream(stream.value)


def filled_beside(run, model, memory, argument, calls=12):
    """Another stream fills `memory(i)` during call number i, of argument(i), which does not touch it."""
    side, other = side_stream(), net()
    for i in range(6):  # what every proof needs is there
        other(data(i, rows=3 + i // 3))
    for i in range(calls):
        x, where = argument(i), memory(i)
        where.zero_()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(200):
                torch.delay(200)
                where.add_(1)
        run(model, x)
        torch.cuda.current_stream().wait_stream(side)
        run.see(where)


@case("(eer{2}){3}")
def a_buffer_is_filled_beside(run):
    model = net()
    model.register_buffer("spare", torch.zeros(64, device="cuda"))
    filled_beside(run, model, lambda i: model.spare, lambda i: data(i, rows=3 + i // 4))


# The halves of one storage, in turn: what comes next is on its way while the call reads what came before.
@case("[er]{6}r{8}")
def the_other_half_is_filled_beside(run):
    both = torch.zeros(2, 24, device="cuda")
    filled_beside(run, net(), lambda i: both[1 - i % 2], lambda i: both[i % 2].copy_(data(i).view(24)).view(3, 8), calls=14)


# Threads that need no interpreter's lock to put the next copy on their stream, while models are looked at.
@case("")
def slots_are_filled_by_threads(run):
    count, words = 6, 16
    slots = torch.zeros(count, words, device="cuda")
    models, address, stop, wrong = [net() for _ in range(40)], slots.data_ptr(), threading.Event(), []
    for model in models:
        model.register_buffer("slots", slots)
    context = ctypes.c_void_p()
    DRIVER.cuCtxGetCurrent(ctypes.byref(context))

    def fill(slot):
        DRIVER.cuCtxSetCurrent(context)
        stream, where = side_stream().cuda_stream, ctypes.c_uint64(address + slot * words * 4)
        put, got = (ctypes.c_uint32 * words)(), (ctypes.c_uint32 * words)()
        size, handle, i = ctypes.c_size_t(words * 4), ctypes.c_void_p(stream), 0
        while not stop.is_set():
            i += 1
            put[:] = [i] * words
            DRIVER.cuMemcpyHtoDAsync_v2(where, put, size, handle)
            DRIVER.cuMemcpyDtoHAsync_v2(got, where, size, handle)
            DRIVER.cuStreamSynchronize(handle)
            if list(got) != [i] * words:
                wrong.append((slot, i, list(got)))

    threads = [threading.Thread(target=fill, args=(slot,)) for slot in range(count)]
    for thread in threads:
        thread.start()
    for model in models:
        for i in range(5):
            model(data(i))
    stop.set()
    for thread in threads:
        thread.join()
    run.see(wrong)


def waiting_for_the_host(run, stream):
    """Between calls number 1 and 6 the stream waits for what this thread does later."""
    model, go_on, values, results = net(), threading.Event(), [data(i) for i in range(12)], []
    callback = HOST_FUNCTION(lambda _: go_on.wait(100))
    for i, x in enumerate(values):
        if i == 1:
            DRIVER.cuLaunchHostFunc(stream, callback, None)
        if i == 6:
            go_on.set()
            DRIVER.cuStreamSynchronize(stream)
        call_only(run, model, x, results)
    run.see(results)


def call_only(run, model, x, results):
    """What is seen of a result waits for the stream."""
    seen, run.see = run.see, lambda *_: None
    try:
        results.append(run(model, x))
    finally:
        run.see = seen


# Nothing waits for such a stream.
@case("e{6}e{0,2}r{4,6}", reason="other streams have work all the time")
def another_stream_waits_for_the_host(run):
    waiting_for_the_host(run, ctypes.c_void_p(side_stream().cuda_stream))


@case("e{6}e{0,2}r{4,6}", reason="other streams have work all the time")
def its_stream_waits_for_the_host(run):
    waiting_for_the_host(run, None)
