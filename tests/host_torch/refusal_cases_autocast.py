"""Cases of refusals_test.py under autocast, or under a tool that watches the code."""

import contextlib
import sys

import torch
from refusal_cases_state import hidden, linear, set_hidden


def autocast():
    return torch.autocast("cuda", torch.float16)


@contextlib.contextmanager
def debugged():
    sys.monitoring.use_tool_id(sys.monitoring.DEBUGGER_ID, "a debugger")
    yield
    sys.monitoring.free_tool_id(sys.monitoring.DEBUGGER_ID)


def with_changed_weight(net, x):
    net.linear.weight.mul_(1.25)
    return net.linear(x)


def with_other_type_inside(net, x):
    with torch.autocast("cuda", torch.bfloat16):
        return net.linear(x).float()


def with_one_of_two(net, x):
    """The two parameters share their memory, so that the work is the same."""
    if not hasattr(net, "other"):
        net.other = torch.nn.Parameter(net.linear.weight.detach())
    weight = net.other if hidden() else net.linear.weight
    return torch.nn.functional.linear(x, weight)


def other_if(other, x):
    set_hidden(other)
    return (x,)


# By the id of the refusal, as in refusals_test.py.
CASES = {
    "unknown_casts": (linear, lambda x, i: (x,), autocast),
    "cast_weight_changed": (with_changed_weight, lambda x, i: (x,), autocast),
    "keeps_casts": (with_other_type_inside, lambda x, i: (x,), autocast),
    "other_casts": (with_one_of_two, lambda x, i: other_if(i % 2, x), autocast),
}
if hasattr(sys, "monitoring"):  # Python 3.12
    CASES["code_monitor"] = (linear, lambda x, i: (x,), debugged)
# With GRAPE_VALIDATE=1.
CHECKED = {
    "other_casts_than_replay": (with_one_of_two, lambda x, i: other_if(int(i > 5), x), autocast),
}
