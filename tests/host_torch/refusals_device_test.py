"""refusals_device_test.py --python INTERPRETER --grape LIBRARY: refusals of calls under autocast, or under a tool that watches
the code, and the ids that the report gives. The cases are as those of refusals_test.py.
"""

import contextlib
import csv
import sys

import refusals_test as bed
import replayed


def autocast():
    import torch

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
    import torch

    with torch.autocast("cuda", torch.bfloat16):
        return net.linear(x).float()


def with_one_of_two(net, x):
    """The two parameters share their memory, so that the work is the same. No guard sees the limit."""
    import torch

    if not hasattr(net, "other"):
        net.other = torch.nn.Parameter(net.linear.weight.detach())
    weight = net.other if csv.field_size_limit() == 77 else net.linear.weight
    return torch.nn.functional.linear(x, weight)


def other_if(other, x):
    csv.field_size_limit(77 if other else 76)
    return (x,)


# By the id of the refusal, as in refusals_test.py.
CASES = {
    "unknown_casts": (bed.linear, lambda x, i: (x,), autocast),
    "cast_weight_changed": (with_changed_weight, lambda x, i: (x,), autocast),
    "keeps_casts": (with_other_type_inside, lambda x, i: (x,), autocast),
    "other_casts": (with_one_of_two, lambda x, i: other_if(i % 2, x), autocast),
}
if hasattr(sys, "monitoring"):  # Python 3.12
    CASES["code_monitor"] = (bed.linear, lambda x, i: (x,), debugged)
# With GRAPE_VALIDATE=1, by the id of the difference: the same, and what the report says of the replay.
CHECKED = {
    "other_casts_than_replay": (with_one_of_two, lambda x, i: other_if(i > 5, x), autocast),
}
DIFFERED = "a replay differed from the call itself when it was checked: "
TEXTS = {"other_casts_than_replay": DIFFERED + "autocast keeps other casts"}


def main():
    if sys.argv[1:] == ["--program"]:
        return bed.program(CASES)
    if sys.argv[1:] == ["--program", "checked"]:
        return bed.program(CHECKED)
    given = replayed.options(__doc__)
    not_seen = bed.missing(CASES, bed.reasons_of_cases(given, __file__, ["--program"]))
    reasons = bed.reasons_of_cases(given, __file__, ["--program", "checked"], GRAPE_VALIDATE="1")
    for name, text in TEXTS.items():
        texts = [reason["text"] for reason in reasons[name]]
        print(name, texts)
        not_seen += text not in texts
    return 1 if not_seen else 0


if __name__ == "__main__":
    sys.exit(main())
