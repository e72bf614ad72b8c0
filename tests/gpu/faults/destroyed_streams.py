"""Streams and events are destroyed while work on them is pending, and their handles are used again (row 6)."""

import ctypes

import torch
from driver import Marker, call, new_log, pointer, values

ROUNDS = 200


def main() -> None:
    marker = Marker()
    log = new_log(3 * ROUNDS)
    torch.cuda.synchronize()
    handles = set()
    for index in range(ROUNDS):
        first, second, event = pointer(), pointer(), pointer()
        call("cuStreamCreate", ctypes.byref(first), 1)
        call("cuStreamCreate", ctypes.byref(second), 1)
        call("cuEventCreate", ctypes.byref(event), 2)
        handles.add(first.value)
        marker.launch(first, 3 * index, log)
        call("cuEventRecord", event, first)
        call("cuStreamWaitEvent", second, event, 0)
        marker.launch(second, 3 * index + 1, log)
        call("cuEventDestroy_v2", event)  # still pending: the wait stays
        call("cuStreamDestroy_v2", first)
        with torch.cuda.stream(torch.cuda.ExternalStream(second.value)):
            torch.ones(64, device="cuda").mul_(2)
        marker.launch(second, 3 * index + 2, log)
        call("cuStreamDestroy_v2", second)
        if index % 5 == 4:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    seen = values(log)
    in_order = all([value for value in seen if value // 3 == i] == [3 * i, 3 * i + 1, 3 * i + 2] for i in range(ROUNDS))
    print(f"{len(seen)} launches, in order: {in_order}, handles used again: {len(handles) < ROUNDS}")


if __name__ == "__main__":
    main()
