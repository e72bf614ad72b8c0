"""Python over ctypes on the driver, ended in the named way: return, sys_exit, os_exit, atexit, raise, kill_thread."""
import atexit
import ctypes
import os
import sys
import threading

way = sys.argv[1]
driver = ctypes.CDLL("libcuda.so.1")


def check(result):
    if result != 0:
        raise RuntimeError(f"error {result}")


def synchronize(where):
    check(driver.cuCtxSynchronize())
    print(where, flush=True)


context = ctypes.c_void_p()
check(driver.cuInit(0))
check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(driver.cuCtxSetCurrent(context))
address = ctypes.c_uint64()
check(driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64)))
for i in range(50):
    check(driver.cuMemsetD8Async(address, 7, ctypes.c_size_t(64), None))
synchronize("main")


class Late:
    def __del__(self):
        synchronize("del")


late = Late()
if way == "atexit":
    atexit.register(synchronize, "atexit")
if way == "kill_thread":
    def spin():
        driver.cuCtxSetCurrent(context)
        while True:
            driver.cuMemsetD8Async(address, 7, ctypes.c_size_t(64), None)
    threading.Thread(target=spin, daemon=True).start()
if way == "sys_exit":
    sys.exit(4)
if way == "os_exit":
    os._exit(5)
if way == "raise":
    raise ValueError("on purpose")
