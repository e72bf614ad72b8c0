"""Cases of refusals_test.py whose calls depend on state beside their arguments, or change it."""

import contextlib
import threading

import torch
from numpy._core import _multiarray_umath as umath

CHANGED_FROM = 6  # the call from which on something is not as it was


def linear(net, x, *_):
    return net.linear(x)


def hidden():
    """0 or 1, as `set_hidden()` set it. Grape does not know of it: what functions in C keep, only a list tells."""
    return int(umath._get_madvise_hugepage())


def set_hidden(number):
    umath._set_madvise_hugepage(number)


def alternating(x, i):
    set_hidden(i % 2)
    return (x,)


def other_later(x, i):
    set_hidden(int(i >= CHANGED_FROM))
    return (x,)


def with_face(x, i):
    """Another tensor in the same memory, from the seventh call on with a version of its own."""
    return x, x.detach() if i < CHANGED_FROM else x.data


def scaled(x, i):
    SETTINGS["scale"] = 2 if i < CHANGED_FROM else 3
    return (x,)


def with_setting(net, x):
    return net.linear(x) * SETTINGS["scale"]


def with_view(net, x, other):
    return net.linear(x), x[1:]


def with_kept(x, i):
    KEPT.setdefault("x", torch.ones_like(x))
    return (x,)


def with_memory_of_global(net, x):
    return net.linear(x), KEPT["x"].detach()


def with_generator(net, x):
    torch.default_generator.initial_seed()
    return net.linear(x)


def counting(net, x):
    net.count = getattr(net, "count", 0) + 1
    return net.linear(x) + net.count


def changes_function(x):
    changes_function.calls = getattr(changes_function, "calls", 0) + 1
    return x * 2


def with_draws(net, x):
    torch.rand(1 + hidden())
    return net.linear(x)


def with_layer_drop(net, x):
    number = torch.rand([])
    if number < 0.5:
        return x * 2
    return net.linear(x)


def seeded(x, i):
    """The first number is 0.83 at first, and 0.004 later."""
    torch.default_generator.manual_seed(5 if i < CHANGED_FROM else 3)
    return (x,)


def with_nodes(net, x):
    with torch.enable_grad():
        for _ in range(hidden()):
            net.linear.weight.t()
    return net.linear(x)


def with_empty_on_either_device(net, x):
    return net.linear(x), torch.empty(0, device=f"cuda:{hidden()}")


@contextlib.contextmanager
def threads_traced():
    threading.settrace(lambda *_: None)
    yield
    threading.settrace(None)


SETTINGS = {}
KEPT = {}


def just(x, i):
    return (x,)


CASES = {
    "calls_generator": (with_generator, just),
    "observed_by_others": (linear, just, threads_traced),
    "module_never_the_same": (counting, just),
    "changes_function": (changes_function, just),
    "names_not_as_they_were": (with_setting, scaled),
    "result_not_as_it_was": (with_view, with_face),
    "returns_older_memory": (with_memory_of_global, with_kept),
    "other_tensor_device": (with_empty_on_either_device, alternating),
    "draws_otherwise": (with_draws, alternating),
    "draws_decide_otherwise": (with_layer_drop, seeded),
    "makes_other_nodes": (with_nodes, alternating),
}
# With each replay checked.
CHECKED = {
    "makes_other_nodes_than_replay": (with_nodes, other_later),
}
