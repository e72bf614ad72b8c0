"""GRAPE_STRICT and GRAPE_VALIDATE."""
import re

import torch
from torch import nn

from bed import case
from tiny import Net, data, net

STRICT = {"GRAPE_STRICT": "1"}


def call(run, model, *args):
    """As run(), for calls that raise under Grape alone: the result is not looked at. Returns the error's text."""
    before = torch._C._operators_run()
    try:
        model(*args)
    except RuntimeError as error:
        run.calls.append(None)
        return str(error)
    run.calls.append(torch._C._operators_run() - before)
    return None


def expect(errors, name, text):
    """Of the errors, where there are any: the case's pattern says where there must be some."""
    for error in filter(None, errors):
        assert re.match(rf"GRAPE_STRICT: {name} is not replayed: {text}", error), error


@case("eer{4}eer{2}", environment=STRICT)
def strict_and_all_is_well(run):
    model = net()
    for i in range(6):
        run(model, data(i))
    for i in range(4):
        run(model, data(i, rows=5))


@case("eer{4}xeer{3}", environment=STRICT)
def strict_when_a_weight_is_replaced(run):
    model, errors = net(), []
    for i in range(12):
        if i == 6:
            model.first.weight = nn.Parameter(torch.ones(16, 8).cuda())
        errors.append(call(run, model, data(i)))
    expect(errors, "tiny:Net", r"its module is not as it was: module\.first\.weight\. What ")


HERE = r", at simulated/cases_user\.py:\d+ in [\w.<>]*forward\. "


@case("eer{4}xxrxr", environment=STRICT)
def strict_when_another_value_is_read(run):
    class Reading(Net):
        def forward(self, x):
            y = super().forward(x)
            return y + 1 if x.sum().item() > 0 else y - 1

    model = net(Reading)
    values = [-1.0 if i in (6, 7, 9) else 1.0 for i in range(11)]
    errors = [call(run, model, torch.full((3, 8), value, device="cuda")) for value in values]
    expect(errors, r".*\.Reading", "a value that the host reads differs from the one in the proof" + HERE + "Python looks")


# The third call ran, and was the last chance.
@case("eex{5}", environment=STRICT)
def strict_when_arguments_are_given_up(run):
    class Copying(Net):
        def forward(self, x):
            return super().forward(x) + torch.ones(20000).cuda().sum()

    model = net(Copying)
    errors = [call(run, model, data(i)) for i in range(7)]
    expect(errors, r".*\.Copying", r"copies more host memory to the device than Grape keeps \(cuMemcpyHtoDAsync\)" +
           HERE + "Data is copied")


@case("x{3}", environment=STRICT)
def strict_when_an_argument_is_opaque(run):
    class Summing(Net):
        def forward(self, parts):
            return super().forward(sum(parts))

    model = net(Summing)
    errors = [call(run, model, (data(i + k) for k in range(2))) for i in range(3)]
    expect(errors, r".*\.Summing", r"argument: a generator\. Only what can be compared")


@case("x{3}", environment=STRICT)
def strict_when_the_module_is_opaque(run):
    class Counting(Net):
        def __init__(self):
            super().__init__()
            self.numbers = (i for i in range(100))

    model = net(Counting)
    errors = [call(run, model, data(i)) for i in range(3)]
    expect(errors, r".*\.Counting", r"module\.numbers: a generator\. Only what can be compared")


@case("e{4}", environment=STRICT)
def strict_and_nothing_on_a_gpu(run):
    class Splitting(nn.Module):
        def forward(self, words):
            return [word.upper() for word in words]

    for _ in range(4):
        run(Splitting(), (word for word in "a b c".split()))


@case("eer{2}(er{2}){3}", environment={"GRAPE_VALIDATE": "3"})
def validated_and_equal(run):
    model = net()
    for i in range(13):
        run(model, data(i))


class Hidden(Net):
    """Depends on what no guard sees: a C function's own state."""

    def forward(self, x):
        return super().forward(x) * torch._C._last_number()


LOUD = (r"grape: cases_user:Hidden: GRAPE_VALIDATE: a replay differs from the call itself: output 0 differs from "
        r"eager's\. It runs as always from now on\n")


def hidden(same, other, how):
    """The results of calls with one number of the C function's, then of calls with another one."""
    model, results = net(Hidden), []
    for i in range(same + other):
        if i == same:
            torch._C._next_number()
        results.append(how(model, data(i)))
    return results


# The children are replayed then.
@case("eer{2}e{3}[ep]{2}", environment={"GRAPE_VALIDATE": "3", "GRAPE_LOG": "error"}, stderr=LOUD, stderr_at_end="",
      reason="a replay differed from the call itself when it was checked")
def validated_and_different(run):
    hidden(4, 5, run)


@case("eer{2}x{3}", environment={"GRAPE_VALIDATE": "3", **STRICT}, stderr=LOUD, stderr_at_end="")
def validated_different_and_strict(run):
    errors = hidden(4, 3, lambda *args: call(run, *args))
    expect(errors, "cases_user:Hidden", "a replay differed from the call itself when it was checked: output 0 differs")


@case("e{12}", environment={"GRAPE_VALIDATE": "1"})
def validated_with_reads(run):
    class Reading(Net):
        def forward(self, x):
            y = super().forward(x)
            return y + 1 if x.sum().item() > 0 else [y - 1, y]

    model = net(Reading)
    for i in range(12):
        run(model, torch.full((3, 8), -1.0 if i in (6, 7, 10) else 1.0, device="cuda"))


# What is inside of an excluded module may be a region.
@case("[ep]{8}", environment={"GRAPE_EXCLUDE": "tiny:N?t,torch.optim*:*"}, reason="GRAPE_EXCLUDE names it")
def excluded_module(run):
    model = net()
    for i in range(8):
        run(model, data(i))


@case("eer{2}e[ep]{3}", environment={"GRAPE_VALIDATE": "3", "GRAPE_LOG": "error"}, stderr="grape: .*\n", stderr_at_end="",
      reason="a replay differed from the call itself when it was checked: draws another amount of random numbers")
def validated_and_drawn_otherwise(run):
    class Dropping(Net):
        def forward(self, x):
            y = torch.dropout(super().forward(x), 0.25)
            return torch.dropout(y, 0.25) if csv.field_size_limit() == 77 else y

    model, limit = net(Dropping), csv.field_size_limit()
    torch.manual_seed(7801)
    for _ in range(100):  # seed and offset are like no other number
        torch.rand(4, device="cuda")
    for i in range(8):
        if i == 4:
            csv.field_size_limit(77)
        run(model, data(i))
    csv.field_size_limit(limit)


# Only a replay has to look at the numbers.
@case("eer[er]*", environment={"SIMCUDA_LATENCY": "0"}, refusals=("no_gain",))
def a_replay_takes_longer(run):
    class Small(Net):
        def forward(self, x, numbers):
            return torch.relu(x)

    model, x = net(Small), data()
    for _ in range(60):
        run(model, x, list(range(20000)))


# Which branch the code takes, no guard sees. Its kernels are the same.
@case("e{3}r{5}", refusals=("unknown_writes",))
def another_tensor_is_named(run):
    class Asking(Net):
        def forward(self, x):
            if csv.field_size_limit() == 77:
                dimensions_of_another()
            return super().forward(x)

    model, limit = net(Asking), csv.field_size_limit()
    TENSORS[:] = [torch.zeros(3, device="cuda")]
    for i in range(8):
        run(model, data(i))
        csv.field_size_limit(77)
    csv.field_size_limit(limit)


TENSORS = []


def dimensions_of_another():
    return TENSORS[0].dim()


@case("[ep]{8}", alone=True, refusals=("stream_unknown",))
def torch_does_not_tell_the_device(run):
    def raising():
        raise RuntimeError("no device")

    device, torch._C._cuda_getDevice = torch._C._cuda_getDevice, raising
    model = net()
    for i in range(8):
        run(model, data(i))
    torch._C._cuda_getDevice = device
