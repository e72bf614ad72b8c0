"""Two threads on the driver: one in and out of a module's call, one never. Their calls differ, so that the trace tells
them apart: memsets of 8 bits by the one, of 32 bits by the other. Prints how many of each.
"""
import ctypes
import threading
import time

import torch

driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()


def check(result):
    if result != 0:
        raise RuntimeError(f"error {result}")


def allocate():
    address = ctypes.c_uint64()
    check(driver.cuCtxSetCurrent(context))
    check(driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64)))
    return address


class Inside(torch.nn.Module):
    def __init__(self, address):
        super().__init__()
        self.address = address
        self.calls = 0

    def forward(self, steps):
        for _ in range(steps):
            check(driver.cuMemsetD8Async(self.address, 1, ctypes.c_size_t(64), None))
            self.calls += 1
        entered.set()
        go_on.wait(5)  # the other thread works while this one is inside
        check(driver.cuMemsetD8Async(self.address, 2, ctypes.c_size_t(64), None))
        self.calls += 1


entered, go_on = threading.Event(), threading.Event()
check(driver.cuInit(0))
check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
module = Inside(allocate())
end = time.monotonic() + 1
while time.monotonic() < end:  # Grape's hooks come with a driver call, and need a moment
    check(driver.cuCtxSynchronize())
    time.sleep(0.01)
others = 0


def outside():
    global others
    address = allocate()
    for _ in range(10):
        if not entered.wait(5):
            raise RuntimeError("the module was not entered")
        entered.clear()
        for _ in range(20):
            check(driver.cuMemsetD32Async(address, 3, ctypes.c_size_t(16), None))
            others += 1
        go_on.set()


other = threading.Thread(target=outside)
other.start()
for _ in range(10):
    go_on.clear()
    module(5)
other.join()
check(driver.cuCtxSynchronize())
print(module.calls, others)
