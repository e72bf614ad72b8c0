"""One run of the GPU tests: the processes that it queues, and the time that is left."""

import argparse
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Callable

from gpu_machine import Build, Result

NOT_RUN = "not run: the time is spent"


class Session:
    """One run of the tests: the build, the folders, the pool of processes and the time that is left."""

    def __init__(self, options: argparse.Namespace, build: Build, scratch: Path) -> None:
        self.options = options
        self.build = build
        self.scratch = scratch
        self.deadline = time.monotonic() + options.budget
        self.pool = ThreadPoolExecutor(options.jobs)

    def start(self, label: str, action: Callable[[Path, float], Result]) -> "Future[Result]":
        """Queues one process; `action` gets a folder of its own and the seconds it may take."""

        def work() -> Result:
            left = self.deadline - time.monotonic()
            if left < 5:
                return Result(None, "", NOT_RUN, 0.0)
            folder = self.scratch / label
            folder.mkdir(parents=True)
            result = action(folder, min(left, self.options.timeout))
            # Cut short by the end of all, not by being slow.
            return Result(None, "", NOT_RUN, 0.0) if result.status is None and left < self.options.timeout else result

        return self.pool.submit(work)


def not_run(result: Result) -> bool:
    return result.status is None and result.stderr == NOT_RUN


def last_line(result: Result) -> str:
    """The last line of stderr that is not Grape's summary: an exception's message."""
    lines = [line for line in result.stderr.splitlines() if line.strip() and not line.startswith("grape")]
    return lines[-1][-300:] if lines else "nothing on stderr"
