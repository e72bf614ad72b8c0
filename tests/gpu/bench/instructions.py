"""Counts the instructions that this process runs in user mode, all of its threads together, by Linux's perf events. The
count does not depend on what else the machine does. perf_event_open(2) says what the numbers mean."""

import ctypes
import os
import struct
from typing import Optional

PERF_EVENT_OPEN = 298  # of x86-64
HARDWARE, INSTRUCTIONS = 0, 1
ATTRIBUTE_BYTES = 64  # PERF_ATTR_SIZE_VER0
INHERIT, EXCLUDE_KERNEL, EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6


class Instructions:
    """Of this thread and of those that it starts from now on. `count()` is None where the machine cannot count."""

    def __init__(self) -> None:
        flags = INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR
        attribute = struct.pack("IIQQQQQ", HARDWARE, ATTRIBUTE_BYTES, INSTRUCTIONS, 0, 0, 0, flags)
        buffer = ctypes.create_string_buffer(attribute, ATTRIBUTE_BYTES)
        syscall = ctypes.CDLL(None, use_errno=True).syscall
        self.file = syscall(PERF_EVENT_OPEN, buffer, 0, -1, -1, 0) if os.uname().machine == "x86_64" else -1

    def count(self) -> Optional[int]:
        if self.file < 0:
            return None
        return struct.unpack("Q", os.read(self.file, 8))[0]
