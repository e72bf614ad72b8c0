"""refusals_test.py --python INTERPRETER --grape LIBRARY: calls that are refused, and the ids that the report gives.

Each case is a module's forward and what it is called with. The program runs plain and under Grape, all that it prints
must be equal, and the region's reasons must have the id under which the case stands.
"""

import sys
import weakref

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


GLOBAL = {}
CASES = {
    "view_in_other_memory": (view_of_swapped, lambda x, i: (x,)),
    "tensor_weakly_held": (held_weakly, lambda x, i: (x,)),
    "argument_is_global_once": (with_global, lambda x, i: (GLOBAL["x"] if i % 2 else x,)),
    "finalizer_without_weak_reference": (end_of, lambda x, i: (x, {"value": Finalized()})),
    "odd_dict": (lambda net, odd: setattr(odd, "y", net.linear(odd.x)), lambda x, i: (Odd(x),)),
    "too_many_values": (lambda net, x: [net.linear(x), *range(100_000)], lambda x, i: (x,)),
}


def program():
    import torch
    from torch import nn

    def net(name):
        def __init__(self):
            nn.Module.__init__(self)
            self.linear = nn.Linear(8, 8)

        forward = CASES[name][0]
        return type(name, (nn.Module,), {"__init__": __init__, "forward": lambda self, *args: forward(self, *args)})()

    torch.manual_seed(0)
    GLOBAL["x"] = torch.ones(4, 8, device="cuda")
    with torch.no_grad():
        for name, (_, arguments) in CASES.items():
            model = net(name).cuda().eval()
            for i in range(CALLS):
                given = arguments(torch.full((4, 8), float(i), device="cuda"), i)
                result = model(*given)
                first = result[0] if isinstance(result, list) else result
                print(name, i, None if first is None else first.sum().item(), flush=True)


def main():
    if sys.argv[1:] == ["--program"]:
        return program()
    given = replayed.options(__doc__)
    _, regions = replayed.compare(given, __file__, ["--program"], GRAPE_EARLY_REGIONS="1")
    ids = {region["region"].rpartition(":")[2]: {reason["id"] for reason in region["reasons"]} for region in regions}
    missing = [f"{name}: {sorted(ids.get(name, ()))}" for name in CASES if name not in ids.get(name, ())]
    print(f"{len(CASES)} refusals, {len(missing)} not seen", *missing, sep="\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
