"""refusals_test.py --python INTERPRETER --grape LIBRARY: calls that are refused, and the ids that the report gives.

Each case is a module's forward and what it is called with. The program runs plain and under Grape, all that it prints
must be equal, and the region's reasons must have the id under which the case stands.
"""

import contextlib
import os
import sys
import weakref

import refusal_cases_autocast
import refusal_cases_state
import replayed

CALLS = 8


class Odd:
    """An object whose `__dict__` is of a class of its own."""

    class Dict(dict):
        pass

    def __init__(self, x):
        self.__dict__ = self.Dict(x=x)


class Finalized:
    """It has a finalizer and cannot be referred to weakly."""

    __slots__ = ("value",)

    def __del__(self):
        pass


def swap(tensor, memory):
    tensor.data = memory


def view_of_swapped(net, x):
    y = x * 2
    view = y[1:]
    swap(y, x * 3)
    return view


def held_weakly(net, x):
    y = net.linear(x)
    weakref.finalize(y, int)
    return y


def with_global(net, x):
    return net.linear(x) + GLOBAL["x"]


def end_of(net, x, box):
    box["value"] = None
    return net.linear(x)


def with_import(net, x):
    import colorsys

    return net.linear(x) * colorsys.ONE_SIXTH


def with_backward(net, x):
    import torch

    with torch.enable_grad():
        y = x.detach().requires_grad_()
        (y * 2).sum().backward()
    return net.linear(x)


def with_changed_global(net, x):
    COUNT["calls"] = COUNT.get("calls", 0) + 1
    return net.linear(x)


def with_changed_grad_mode(net, x):
    import torch

    torch.set_grad_enabled(False)
    return net.linear(x)


def with_whole_storage(net, x):
    return net.linear(x), x.untyped_storage().nbytes()


def rows(x, i):
    """A view that is like `x`, from the sixth call on in a larger storage."""
    import torch

    return ((x if i < 6 else torch.cat([x, x]))[:4],)


@contextlib.contextmanager
def profiled():
    sys.setprofile(lambda *_: None)
    yield
    sys.setprofile(None)


def grad_mode():
    import torch

    return torch.enable_grad()


def dual_level():
    import torch

    return torch.autograd.forward_ad.dual_level()


def linear(net, x, *_):
    return net.linear(x)


GLOBAL, COUNT = {}, {}
# By the id of the refusal: forward, its arguments for the i-th call, and what the calls run in.
CASES = {
    "view_in_other_memory": (view_of_swapped, lambda x, i: (x,)),
    "tensor_weakly_held": (held_weakly, lambda x, i: (x,)),
    "argument_is_global_once": (with_global, lambda x, i: (GLOBAL["x"] if i % 2 else x,)),
    "argument_is_other_global": (with_global, lambda x, i: (GLOBAL["x"] if i > 5 else x,)),
    "finalizer_without_weak_reference": (end_of, lambda x, i: (x, {"value": Finalized()})),
    "odd_dict": (lambda net, odd: setattr(odd, "y", net.linear(odd.x)), lambda x, i: (Odd(x),)),
    "too_many_values": (lambda net, x: [net.linear(x), *range(100_000)], lambda x, i: (x,)),
    "opaque": (linear, lambda x, i: (x, iter([]))),
    "returns_cpu_tensor": (lambda net, x: [net.linear(x), x.new_ones(2, device="cpu")], lambda x, i: (x,)),
    "uses_gradient": (lambda net, x: [net.linear(x), net.linear.weight.grad], lambda x, i: (x,)),
    "imports": (with_import, lambda x, i: (x,)),
    "calls_backward": (with_backward, lambda x, i: (x,)),
    "changes_names": (with_changed_global, lambda x, i: (x,)),
    "changes_dispatch_state": (with_changed_grad_mode, lambda x, i: (x,), grad_mode),
    "other_storage_size": (with_whole_storage, rows),
    "under_autograd": (linear, lambda x, i: (x,), grad_mode),
    "call_profiler": (linear, lambda x, i: (x,), profiled),
    "forward_mode": (linear, lambda x, i: (x,), dual_level),
}


# The cases of a run, and its settings.
RUNS = {
    "calls": (CASES, {}),
    "state": (refusal_cases_state.CASES, {"GRAPE_REGIONS": "refusal_cases_state:changes_function"}),
    "autocast": (refusal_cases_autocast.CASES, {}),
    "checked": ({**refusal_cases_state.CHECKED, **refusal_cases_autocast.CHECKED}, {"GRAPE_VALIDATE": "1"}),
}
# Where the report's id is that of all replays that differed: the whole text.
DIFFERED = "a replay differed from the call itself when it was checked: "
TEXTS = {
    "makes_other_nodes_than_replay": DIFFERED + "makes another number of nodes of autograd's graph",
    "other_casts_than_replay": DIFFERED + "autocast keeps other casts",
}


def program(cases):
    import torch
    from torch import nn

    def called(name, forward):
        """The function itself where the case has its name: a region of its own."""
        if forward.__name__ == name:
            return forward

        def __init__(self):
            nn.Module.__init__(self)
            self.linear = nn.Linear(8, 8)

        members = {"__init__": __init__, "forward": lambda self, *args: forward(self, *args)}
        return type(name, (nn.Module,), members)().cuda().eval()

    torch.manual_seed(0)
    GLOBAL["x"] = torch.ones(4, 8, device="cuda")
    for name, (forward, arguments, *context) in cases.items():
        model = called(name, forward)
        for i in range(CALLS):
            with torch.no_grad(), contextlib.ExitStack() as stack:
                for one in context:
                    stack.enter_context(one())
                given = arguments(torch.full((4, 8), float(i), device="cuda"), i)
                result = model(*given)
            torch.cuda.synchronize()
            first = result[0] if isinstance(result, (list, tuple)) else result
            print(name, i, None if first is None else first.sum().item(), flush=True)


def reasons_of_cases(given, script, arguments, **settings):
    """By case: the reasons of its region."""
    _, regions = replayed.compare(given, script, arguments, GRAPE_EARLY_REGIONS="1", **settings)
    return {region["region"].rpartition(":")[2]: region["reasons"] for region in regions}


def missing(cases, reasons):
    """Prints which of the cases' refusals were not seen; how many."""
    said = {name: {reason[what] for reason in reasons.get(name, ()) for what in ("id", "text")} for name in cases}
    not_seen = [f"{name}: {sorted(said[name])}" for name in cases if TEXTS.get(name, name) not in said[name]]
    print(f"{len(cases)} refusals, {len(not_seen)} not seen", *not_seen, sep="\n")
    return len(not_seen)


def main():
    if sys.argv[1:2] == ["--program"]:
        return program(RUNS[sys.argv[2]][0])
    given = replayed.options(__doc__)
    os.environ["SIMCUDA_DEVICES"] = "2"
    not_seen = sum(missing(cases, reasons_of_cases(given, __file__, ["--program", run], **settings))
                   for run, (cases, settings) in RUNS.items())
    return 1 if not_seen else 0


if __name__ == "__main__":
    sys.exit(main())
