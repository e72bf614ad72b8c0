"""Code that does what no state of the process shows: refused by what it calls."""
import contextvars
import datetime
import gc
import io
import itertools
import logging
import os
import queue
import random
import sys
import threading
import time
import uuid
import warnings

import torch
from bed import case
from tiny import Net, data, net

TEXT = io.StringIO()
QUEUE = queue.Queue()
EVENT = threading.Event()
LOGGER = logging.getLogger("replay_cases")


def doing(run, action, calls=8):
    """A model whose forward calls `action` before its work, and multiplies by what that returned."""

    class Doing(Net):
        def forward(self, x):
            result = action()
            return super().forward(x) * (1.0 if result is None else result)

    model = net(Doing)
    for i in range(calls):
        run(model, data(i))
    return model


@case("e{4,8}p{0,4}", reason="print()", group="usual")
def prints(run):
    doing(run, lambda: print("forward"))


@case("e{4,8}p{0,4}", reason="calls")
def writes_to_stdout(run):
    doing(run, lambda: sys.stdout.write("forward\n") and None)


@case("e{4,8}p{0,4}", reason="open()")
def reads_a_file(run):
    def read():
        with open(__file__, encoding="utf-8") as file:
            return float(len(file.readline()))

    doing(run, read)


@case("e{4,8}p{0,4}", reason="calls")
def lists_a_folder(run):
    doing(run, lambda: float(len(os.listdir(os.path.dirname(__file__))) > 0))


@case("e{4,8}p{0,4}", reason="perf_counter")
def reads_a_clock(run):
    doing(run, lambda: float(time.perf_counter() > 0))


@case("e{4,8}p{0,4}", reason="now()")
def reads_the_date(run):
    doing(run, lambda: float(datetime.datetime.now().year > 2000))


@case("[ep]{8}", group="usual")
def host_random(run):
    random.seed(5)
    doing(run, random.random)
    run.see(random.random())


@case("e{4,8}p{0,4}")
def host_random_of_torch(run):
    doing(run, lambda: torch.rand(1).item())
    run.see(torch.rand(2))


@case("e{4,8}p{0,4}", reason="calls")
def random_of_the_system(run):
    doing(run, lambda: float(len(os.urandom(4))))


@case("e{4,8}p{0,4}")
def makes_a_uuid(run):
    doing(run, lambda: float(uuid.uuid4().version))


@case("e{4,8}p{0,4}", reason="calls")
def writes_a_text_in_memory(run):
    TEXT.truncate(0)
    doing(run, lambda: TEXT.write("x") and None)
    run.see(TEXT.getvalue().count("x"))


@case("e{4,8}p{0,4}")
def logs(run):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    LOGGER.addHandler(handler)
    doing(run, lambda: LOGGER.warning("forward"))
    LOGGER.removeHandler(handler)
    run.see(stream.getvalue().count("forward"))


# A level that is off says nothing; once it is on, each call must be heard.
@case("e{2,3}r{5,6}e{6}")
def logs_from_some_call_on(run):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    LOGGER.addHandler(handler)

    class Logging(Net):
        def forward(self, x):
            LOGGER.info("forward")
            return super().forward(x)

    model = net(Logging)
    for i in range(14):
        if i == 8:
            LOGGER.setLevel(logging.INFO)
        run(model, data(i))
    LOGGER.setLevel(logging.NOTSET)
    LOGGER.removeHandler(handler)
    run.see(stream.getvalue().count("forward"))


@case("e{4,8}p{0,4}")
def warns_each_time(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        doing(run, lambda: warnings.warn("forward"))
    run.see(len(caught))


@case("e{4,8}p{0,4}")
def puts_into_a_queue(run):
    doing(run, lambda: QUEUE.put(1))
    run.see(QUEUE.qsize())


@case("[ep]{8}")
def sets_an_event(run):
    EVENT.clear()
    doing(run, EVENT.set)
    run.see(EVENT.is_set())


@case("[ep]{8}")
def starts_a_thread(run):
    done = []

    def start():
        thread = threading.Thread(target=done.append, args=(1,))
        thread.start()
        thread.join()

    doing(run, start)
    run.see(len(done))


@case("e{4,8}p{0,4}", reason="collect()")
def collects_garbage(run):
    def collect():
        gc.collect()

    doing(run, collect)


@case("e{4,8}p{0,4}")
def imports_in_each_call(run):
    def load():
        sys.modules.pop("this_helper", None)
        import this_helper

        return this_helper.VALUE

    before = sys.modules.get("this_helper")
    doing(run, load)
    if before is not None:
        sys.modules["this_helper"] = before


# Reading the environment is allowed, as long as it stays.
@case("eer{6}eer{6}")
def reads_the_environment(run):
    os.environ["CASE_SCALE"] = "2"

    class Reading(Net):
        def forward(self, x):
            return super().forward(x) * float(os.environ["CASE_SCALE"])

    model = net(Reading)
    for i in range(16):
        if i == 8:
            os.environ["CASE_SCALE"] = "3"
        run(model, data(i))


@case("e{4,8}p{0,4}")
def sets_the_environment(run):
    def count():
        os.environ["CASE_COUNT"] = str(int(os.environ["CASE_COUNT"]) + 1)

    os.environ["CASE_COUNT"] = "0"
    doing(run, count)
    run.see(os.environ["CASE_COUNT"])


@case("[ep]{8}")
def sets_a_context_variable(run):
    variable = contextvars.ContextVar("variable", default=0)
    doing(run, lambda: variable.set(variable.get() + 1) and None)
    run.see(variable.get())


@case("[ep]{8}")
def counts_by_an_iterator(run):
    counter = itertools.count()
    doing(run, lambda: float(next(counter)))
    run.see(next(counter))


@case("[ep]{8}")
def counts_in_a_generator(run):
    def generate():
        for i in range(100):
            yield float(i)

    generator = generate()
    doing(run, lambda: next(generator))
    run.see(next(generator))


@case("[ep]{8}")
def counts_at_the_end_of_an_object(run):
    ended = []

    class Ending:
        def __del__(self):
            ended.append(1)

    def make():
        Ending()

    doing(run, make)
    run.see(len(ended))


# Values of device memory that the host reads.
@case("eer{6}")
def value_read_stays(run):
    class Reading(Net):
        def forward(self, x):
            y = super().forward(x)
            return y + 1 if x.sum().item() > 0 else y - 1

    model = net(Reading)
    for _ in range(8):
        run(model, torch.ones(3, 8, device="cuda"))


@case("eer{4}eer{2}er")
def value_read_changes(run):
    class Reading(Net):
        def forward(self, x):
            y = super().forward(x)
            return y + 1 if x.sum().item() > 0 else y - 1

    model = net(Reading)
    for i in range(12):
        run(model, torch.full((3, 8), -1.0 if i in (6, 7, 10) else 1.0, device="cuda"))


@case("eer{2}(er)+")
def value_read_decides_in_an_if(run):
    class Reading(Net):
        def forward(self, x):
            y = super().forward(x)
            if x.sum() > 0:
                y = y * 2
            return y

    model = net(Reading)
    for i in range(12):
        run(model, torch.full((3, 8), -1.0 if i > 3 and i % 2 == 0 else 1.0, device="cuda"))


@case("e{4,8}p{0,4}")
def value_read_is_used_as_a_number(run):
    class Reading(Net):
        def forward(self, x):
            return super().forward(x) * x.sum().item()

    model = net(Reading)
    for i in range(8):
        run(model, data(i))


@case("e{4,8}p{0,4}")
def memory_changes_before_a_read(run):
    class Reading(Net):
        def forward(self, x):
            x.add_(1)
            y = super().forward(x)
            return y + 1 if x.sum().item() > 60 else y - 1

    model, x = net(Reading), torch.ones(3, 8, device="cuda")
    for _ in range(8):
        run(model, x)
        run.see(x)


# It lies there unchanged in the end, or until the value is another one: then the call would begin anew on what it had changed.
@case("e{4,8}p{0,4}", reason="before it reads a value on the host")
def memory_changes_and_back_around_a_read(run):
    class Reading(Net):
        def forward(self, x):
            x.mul_(2)
            positive = (x.sum() > 0).item()
            x.mul_(0.5)
            return super().forward(x) if positive else super().forward(x) * 2

    model = net(Reading)
    for i in range(8):
        x = torch.full((3, 8), -1.0 if i == 6 else 1.0, device="cuda")
        run(model, x)
        run.see(x)


ADDED = None


@case("[ep]{16}", reason="before it reads a value on the host")
def memory_may_change_before_a_read(run):
    global ADDED

    class Adding(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(8))

        def forward(self, x, by):
            (ADDED if self.flag else self.seen).add_(by)
            positive = (x.sum() > 0).item()
            return super().forward(x) + (1 if positive else 2)

    for flag in (False, True):
        model = net(Adding)
        model.flag, ADDED = flag, torch.zeros(8).cuda()
        for i in range(8):
            x = torch.full((3, 8), -1.0 if i == 6 else 1.0, device="cuda")
            run(model, x, torch.full((8,), float(i == 6), device="cuda"))
            run.see(model.seen, ADDED)


@case("e{4,8}p{0,4}")
def much_is_read(run):
    class Reading(Net):
        def forward(self, x):
            return super().forward(x) * float(len((x @ torch.ones(8, 2000, device="cuda")).tobytes()))

    model = net(Reading)
    for _ in range(8):
        run(model, data())


@case("e{4,8}p{0,4}")
def returns_a_tensor_of_the_host(run):
    class Reading(Net):
        def forward(self, x):
            return super().forward(x).cpu()

    model = net(Reading)
    for i in range(8):
        run(model, data(i))


# Data of the host that is copied to the device.
@case("eer{6}")
def copies_from_the_host(run):
    class Copying(Net):
        def forward(self, x, scale):
            return super().forward(x) * torch.tensor([scale]).cuda()

    model = net(Copying)
    for i in range(8):
        run(model, data(i), 2.0)


class Table(Net):
    """Copies a tensor of the host's, which somebody changes."""

    def forward(self, x, table=None):
        if table is None:
            table = self.table if self.table is not None else TABLE
        return super().forward(x) * table.cuda()


TABLE = torch.ones(8)


@case("eer{6}eer{6}")
def copies_a_tensor_of_the_module(run):
    model = net(Table)
    model.table = torch.ones(8)
    for i in range(16):
        if i == 8:
            model.table.mul_(3.0)
        run(model, data(i))


@case("eer{6}eer{6}")
def copies_a_global_tensor(run):
    model = net(Table)
    model.table = None
    for i in range(16):
        if i == 8:
            TABLE.mul_(3.0)
        run(model, data(i))


@case("eer{6}eer{6}r")
def copies_an_argument(run):
    model, table = net(Table), torch.ones(8)
    model.table = None
    for i in range(17):
        if i == 8:
            table.mul_(3.0)
        run(model, data(i), table if i < 16 else torch.ones(8))


# Too much of it.
@case("e{4,8}p{0,4}", reason="copies more host memory")
def copies_much_from_the_host(run):
    class Copying(Net):
        def forward(self, x):
            return super().forward(x) * torch.ones(20000).cuda().sum()

    model = net(Copying)
    for i in range(8):
        run(model, data(i))


# Nor in all calls together: each shape is a proof of its own.
@case("[er]", alone=True, refusals=("copies_too_much_in_all",))
def copies_much_from_the_host_for_many_shapes(run):
    class Copying(Net):
        def forward(self, x):
            for i in range(4):
                x = x * torch.full((16384,), float(i)).cuda().sum()
            return x

    model = net(Copying)
    for rows in range(1, 136):
        for i in range(3):
            model(data(i, rows=rows))
    run(model, data())


@case("e{4,8}p{0,4}", reason="cuCtxSynchronize")
def waits_for_the_device(run):
    class Waiting(Net):
        def forward(self, x):
            y = super().forward(x)
            torch.cuda.synchronize()
            return y

    model = net(Waiting)
    for i in range(8):
        run(model, data(i))
