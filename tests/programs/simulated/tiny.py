"""A small model of operators that the simulated PyTorch knows, its input, and what cases of it have in common."""

import contextlib
import io
import os
import time

import torch
from bed import case, operators_run
from torch import nn


class Net(nn.Module):
    """Two layers; what most cases start from."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)
        self.flag, self.count, self.scale = False, 0, 1.0

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def replay_inside(call):
    """Under Grape: calls until a part of one is replayed. When that is, depends on the time that looking at inner modules may
    take, a share of all time; on a busy machine it is late. With GRAPE_VALIDATE all operators run each time: then for a while.
    What it prints is nobody's."""

    def operators():
        before = operators_run()
        with contextlib.redirect_stdout(io.StringIO()):
            call()
        return operators_run() - before

    if "LD_PRELOAD" not in os.environ:
        return
    all_of_it, last = operators(), time.monotonic() + (1 if "GRAPE_VALIDATE" in os.environ else 60)
    while time.monotonic() < last and operators() == all_of_it:
        time.sleep(0.02)


def net(kind=Net):
    torch.manual_seed(1)
    return kind().cuda().eval()


def data(seed=2, rows=3):
    return (torch.rand(rows, 8, generator=torch.Generator().manual_seed(seed)) - 0.5).cuda()


GUARDED, REFUSED = "eer{4}eer{4}", "[ep]{12}"


def reads(pattern, **options):
    """Declares a case of a model that multiplies by what `read(model)` gives. `change(model)` makes that another after six
    calls. The decorated function makes both, and maybe what puts all back."""

    def declare(make):
        def body(run):
            read, change, *back = make()

            class Reading(Net):
                def forward(self, x):
                    return super().forward(x) * float(read(self))

            model = net(Reading)
            try:
                for i in range(12):
                    if i == 6:
                        change(model)
                    run(model, data(i))
            finally:
                for put_back in back:
                    put_back()

        body.__name__, body.__module__ = make.__name__, make.__module__
        return case(pattern, **options)(body)

    return declare
