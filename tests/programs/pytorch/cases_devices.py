"""Programs with two devices (group "devices", tests/host_torch/devices_test.py): each sees what its models return, and which
device is current."""

import ctypes
import threading

import bed
import torch
from torch import nn

CALLS = 16


def case(least=CALLS // 2, classes=None, reason=None, refusals=()):
    """`least`: so many calls of the class of that name must be replayed; `classes`: the same of others. `reason`: what the
    report must say of the class of that name, and what it must advise. `refusals`: ids that it must give besides."""

    def add(work):
        def body():
            if torch.cuda.device_count() < 2:
                raise bed.Skip("needs two devices")
            torch.cuda.set_device(0)
            work()
            torch.cuda.set_device(0)

        name = "".join(word.title() for word in work.__name__.split("_"))
        wanted = {name: least, **(classes or {})}
        options = {"least": wanted, "reason": reason, "refusals": refusals}
        bed.declare(name, body, file="devices", mode="grad", group="devices", **options)
        return work

    return add


class Net(nn.Module):
    """Draws random numbers, unless it is in mode eval()."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.last(torch.dropout(torch.relu(self.first(x)), 0.3, self.training))


def made(name, base=Net, device="cuda:1"):
    return type(name, (base,), {"__module__": __name__})().to(device)


def see(*values):
    """And random numbers of both devices, which the calls before have moved on, and the current device."""
    drawn = torch.rand(2, device="cuda:1"), torch.rand(2, device="cuda:0")
    bed.see(torch.cuda.current_device(), *values, *drawn)


def data(device="cuda:1"):
    return torch.randn(4, 16).to(device)


@torch.no_grad()
def calls(model, times=CALLS):
    for _ in range(times):
        y = model(data())
        see(y, y.device.index)


@case()
def same():
    torch.cuda.set_device(1)
    calls(made("Same"))


@case()
def block():
    model = made("Block")
    with torch.no_grad():
        for _ in range(CALLS):
            with torch.cuda.device(1):
                y = model(data())
            see(y)


@case()
def other():
    calls(made("Other"))


@case(least=CALLS)
def in_turns():
    model = made("InTurns")
    for device in (0, 1, 0, 1):
        torch.cuda.set_device(device)
        calls(model)


@case()
def block_of_a_stream():
    model = made("BlockOfAStream")
    stream = torch.cuda.Stream(device=1)
    with torch.no_grad():
        for _ in range(CALLS):
            x = data()
            torch.cuda.synchronize(1)
            with torch.cuda.stream(stream):
                y = model(x)
            stream.synchronize()
            see(y)


@case()
def stream_that_was_set():
    model = made("StreamThatWasSet")
    torch.cuda.set_stream(torch.cuda.Stream(device=1))
    torch.cuda.set_device(0)
    calls(model)
    torch.cuda.set_stream(torch.cuda.default_stream(1))
    torch.cuda.set_device(0)
    calls(model)


class Asking(Net):
    def forward(self, x):
        return super().forward(x) + torch.cuda.current_device()


@case(least=CALLS)
def device_that_is_asked_for():
    model = made("DeviceThatIsAskedFor", Asking)
    for device in (0, 1):
        torch.cuda.set_device(device)
        calls(model)


class Choosing(Net):
    def forward(self, x):
        y = super().forward(x)
        torch.cuda.set_device(1)
        return y


@case(least=0, reason=("current", ""))
def device_that_is_set():
    model = made("DeviceThatIsSet", Choosing)
    for _ in range(6):
        torch.cuda.set_device(0)
        calls(model, 1)


class Visiting(Net):
    """Makes another device the current one for a moment, and does nothing there."""

    def forward(self, x):
        with torch.cuda.device(0):
            return super().forward(x)


@case()
def device_that_is_visited():
    calls(made("DeviceThatIsVisited", Visiting))


class Seeding(Net):
    def forward(self, x):
        torch.cuda.manual_seed(5)
        return super().forward(x)


@case(least=0)
def seed_of_the_current_one():
    calls(made("SeedOfTheCurrentOne", Seeding))


class Reading(Net):
    def forward(self, x):
        y = super().forward(x)
        return y + 1 if y.abs().sum() > 0 else y


@case()
def value_that_the_host_reads():
    model = made("ValueThatTheHostReads", Reading)
    with torch.no_grad():
        for _ in range(CALLS):
            x = data()
            with torch.cuda.device(1):
                torch.cuda._sleep(8_000_000)  # so long that other threads have their turn in the wait
            see(model(x))


class Running(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        y = super().forward(x)
        self.mean.mul_(0.5).add_(y[0])
        return y + self.mean, torch.zeros(3, device=x.device)


@case()
def buffer_that_is_written_to():
    model = made("BufferThatIsWrittenTo", Running)
    with torch.no_grad():
        for _ in range(CALLS):
            see(*model(data()), model.mean)


@case()
def autocast():
    model = made("Autocast")
    with torch.no_grad():
        for _ in range(CALLS):
            with torch.autocast("cuda", torch.bfloat16):
                y = model(data())
            see(y)


@case()
def fresh_thread():
    model = made("FreshThread")
    thread = threading.Thread(target=calls, args=(model,))
    thread.start()
    thread.join()
    see()


class Plain(nn.Module):
    """On no device by itself."""

    def forward(self, x):
        return (x * 2).relu() + 1


@case(least=CALLS)
def both_devices_in_turns():
    model = made("BothDevicesInTurns", Plain)
    with torch.no_grad():
        for _ in range(CALLS):
            for device in ("cuda:0", "cuda:1"):
                see(model(data(device)))


@case(least=CALLS)
def each_device_in_turn():
    model = made("EachDeviceInTurn", Plain)
    with torch.no_grad():
        for _ in range(CALLS):
            for device in ("cuda:0", "cuda:1"):
                with torch.cuda.device(device):
                    torch.cuda._sleep(2_000_000)  # what comes on another device's stream is too early
                    see(model(data(device)))


class Moving(Net):
    def forward(self, x):
        return super().forward(x.to(self.first.weight.device))


@case()
def argument_on_the_cpu():
    model = made("ArgumentOnTheCpu", Moving)
    with torch.no_grad():
        for _ in range(CALLS):
            see(model(torch.ones(4, 16)))


class Summing(nn.Module):
    def forward(self, many):
        return torch.stack(many).sum(0)


@case()
def many_arguments():
    # The walk of these is kept while the device works (python_hooks/walk/walk_memo.h).
    model, many = made("ManyArguments", Summing), [data() for _ in range(30)]
    with torch.no_grad():
        for _ in range(CALLS):
            with torch.cuda.device(1):
                torch.cuda._sleep(20_000_000)
            see(model(many))


class Mixing(Net):
    def forward(self, x):
        return super().forward(x), torch.zeros(3, device="cuda")


@case(least=0, reason=("works on several devices", "stay on one GPU"))
def result_on_the_current_one():
    model = made("ResultOnTheCurrentOne", Mixing)
    with torch.no_grad():
        for _ in range(CALLS):
            see(*model(data()))


class Several(nn.Module):
    """Of two devices, and its parts each of one."""

    def __init__(self):
        super().__init__()
        self.one, self.two = made("OneOfSeveral", device="cuda:0"), made("TwoOfSeveral")

    def forward(self, x, y):
        return self.one(x), self.two(y)


@case(least=0, classes={"OneOfSeveral": 6, "TwoOfSeveral": 6}, reason=("works on several devices", "each of its parts"))
def several():
    model = Several()
    with torch.no_grad():
        for _ in range(3 * CALLS):
            see(*model(data("cuda:0"), data()))


@case(least=0)
def training():
    model = made("Training")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        optimizer.zero_grad()
        loss = model(data()).square().mean()
        loss.backward()
        optimizer.step()
        see(loss.detach(), *(parameter.detach() for parameter in model.parameters()))


CUDA_ERROR_UNKNOWN = 999


def failing(symbol, nth):
    """From here on; null: none. NVIDIA's own driver cannot be told to fail."""
    driver = ctypes.CDLL("libcuda.so.1")
    if not hasattr(driver, "simcuda_reset"):
        return None
    if symbol is None:
        return driver.simcuda_reset()
    driver.simcuda_set_fault.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int]
    if driver.simcuda_set_fault(symbol.encode(), nth, CUDA_ERROR_UNKNOWN) != 0:
        raise RuntimeError(f"no function {symbol}")


def fail(symbol, name):
    """What the program itself does not call fails, in one of the calls."""
    with torch.no_grad():
        for nth in (1, 2, 3, 7, 0):
            for at in (1, 2, 3, 5):
                model = made(name, Running)
                for i in range(8):
                    x = data()
                    if i == at:
                        failing(symbol, nth)
                    y = model(x)
                    failing(None, 0)
                    see(*y, model.mean)


@case(least=0, refusals=("no_context",))
def failing_push():
    fail("cuCtxPushCurrent_v2", "FailingPush")


@case(least=0)
def failing_pop():
    fail("cuCtxPopCurrent_v2", "FailingPop")


@case(least=0, refusals=("place_unknown",))
def failing_retain():
    fail("cuDevicePrimaryCtxRetain", "FailingRetain")


@case(least=0)
def failing_release():
    fail("cuDevicePrimaryCtxRelease_v2", "FailingRelease")
