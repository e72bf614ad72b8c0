"""64 threads launch at once: on one stream, on streams of their own, on per-thread default streams (row 13)."""

import ctypes
import threading
from typing import Callable

import torch
from driver import Marker, call, new_log, pointer, values

THREADS, LAUNCHES = 64, 100


def run_threads(marker: Marker, work: Callable[[int], None]) -> None:
    barrier = threading.Barrier(THREADS)
    errors = []

    def body(index: int) -> None:
        try:
            call("cuCtxSetCurrent", marker.context)
            barrier.wait()
            work(index)
        except Exception as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=body, args=(index,)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    call("cuCtxSynchronize")
    print(f"errors: {sorted(set(errors))}")


def main() -> None:
    marker = Marker()
    shared_log, logs = new_log(THREADS * LAUNCHES), [new_log(2 * LAUNCHES) for _ in range(THREADS)]
    shared_stream, own_streams = pointer(), [pointer() for _ in range(THREADS)]
    for stream in [shared_stream, *own_streams]:
        call("cuStreamCreate", ctypes.byref(stream), 1)
    torch.cuda.synchronize()

    def value(mode: int, thread: int, index: int) -> int:
        return (mode * THREADS + thread) * LAUNCHES + index

    def on_one_stream(thread: int) -> None:
        for index in range(LAUNCHES):
            marker.launch(shared_stream, value(0, thread, index), shared_log)

    def on_own_streams(thread: int) -> None:
        for index in range(LAUNCHES):
            marker.launch(own_streams[thread], value(1, thread, index), logs[thread])

    def on_default_streams(thread: int) -> None:
        for index in range(LAUNCHES):
            marker.launch(pointer(), value(2, thread, index), logs[thread], "cuLaunchKernel_ptsz")

    for work in (on_one_stream, on_own_streams, on_default_streams):
        run_threads(marker, work)
    seen = values(shared_log)
    ordered = all(
        [v for v in seen if v // LAUNCHES == thread] == list(range(thread * LAUNCHES, (thread + 1) * LAUNCHES))
        for thread in range(THREADS)
    )
    print(f"one stream: {len(seen)} launches, each thread's in order: {ordered}")
    ordered = all(
        values(log) == [value(mode, thread, index) for mode in (1, 2) for index in range(LAUNCHES)]
        for thread, log in enumerate(logs)
    )
    print(f"own and per-thread default streams: in order: {ordered}")


if __name__ == "__main__":
    main()
