"""Modules with forward hooks: those that only compute are replayed with the call, the others are called each time."""
import contextvars

import torch
from bed import case
from tiny import data, net


def calling(run, model, calls=16, changes=None, seen=lambda: ()):
    for i in range(calls):
        if changes and i in changes:
            changes[i]()
        run(model, data(i))
        run.see(*seen())


# Before 3.11 frames do not say which function runs: a closure that only a hook holds is not known, and refused.
@case("eer{14}")
def hook_replaces_output(run):
    model = net()
    model.second.register_forward_hook(lambda m, arguments, output: output * 2)
    model.register_forward_hook(lambda m, arguments, output: {"out": output, "twice": (output, output[1:])})
    calling(run, model)


@case("eer{14}", least_python=(3, 11))
def hook_replaces_input(run):
    model, shift = net(), torch.zeros(8).cuda()
    model.register_forward_pre_hook(lambda m, arguments: (arguments[0] + shift,))
    calling(run, model, changes={8: lambda: shift.fill_(3)})


@case("eer{6}eer{2}(?:ee|rr)r{2}", least_python=(3, 11))
def hook_of_changed_closure(run):
    scale, model = [2.0], net()
    model.second.register_forward_hook(lambda m, arguments, output: output * scale[0])

    def set_to(*values):
        return lambda: scale.__setitem__(slice(None), values)

    calling(run, model, changes={8: set_to(3.0, 1.0), 12: set_to(2.0)})


@case("eer{6}eer{2}(?:ee|rr)r{2}")
def hook_removed_later(run):
    model = net()
    handles = [model.second.register_forward_hook(lambda m, a, out, n=n: out + n) for n in (1, 2)]
    calling(run, model, changes={8: handles[1].remove, 12: handles[0].remove})


@case("e{4}[ep]{12}")
def hook_counts(run):
    model, count = net(), 0

    def hook(module, arguments, output):
        nonlocal count
        count += 1

    model.second.register_forward_hook(hook)
    calling(run, model, seen=lambda: (count,))


GLOBAL_COUNT = [0]


@case("e{4}[ep]{12}")
def hook_counts_in_global(run):
    model = net()

    def hook(module, arguments, output):
        GLOBAL_COUNT[0] += 1

    model.second.register_forward_hook(hook)
    calling(run, model, seen=lambda: (GLOBAL_COUNT[0],))


@case("e{4}[ep]{12}")
def hook_object_counts(run):
    class Counter:
        calls = 0

        def __call__(self, module, arguments):
            self.calls += 1

    model, counter = net(), Counter()
    model.register_forward_pre_hook(counter)
    calling(run, model, seen=lambda: (counter.calls,))


@case("e{4}[ep]{12}")
def hook_keeps_output(run):
    """Each output lies where the last one lay, which is let go first."""
    model, kept = net(), {}
    model.second.register_forward_pre_hook(lambda m, arguments: kept.clear())
    model.second.register_forward_hook(lambda m, arguments, output: kept.update(last=output))
    calling(run, model, seen=lambda: (kept["last"],))


@case("e{4}r{12}")
def hook_keeps_output_on_module(run):
    model = net()
    model.first.register_forward_hook(lambda m, arguments, output: setattr(m, "last", output))
    calling(run, model, seen=lambda: (model.first.last,))


@case("eer{14}", least_python=(3, 11))
def hook_fills_buffer(run):
    model, buffer = net(), torch.zeros(3, 8).cuda()

    def hook(module, arguments, output):
        buffer.copy_(output)

    model.second.register_forward_hook(hook)
    calling(run, model, seen=lambda: (buffer,))


@case("e{4}[ep]{12}")
def hook_prints(run):
    model = net()
    model.second.register_forward_hook(lambda *_: print("hook"))
    calling(run, model)


COLLECTOR = contextvars.ContextVar("collector", default=None)


@case("eer{4}e{4}[er]{8}")
def hook_collects_when_asked(run):
    """A context variable says whether, and where to, as in Transformers."""
    model, collected = net(), []

    def hook(module, arguments, output):
        into = COLLECTOR.get()
        if into is not None:
            into.append(output)

    model.first.register_forward_hook(hook)
    for i in range(18):
        token = COLLECTOR.set(collected if 6 <= i < 10 else None)
        run(model, data(i))
        COLLECTOR.reset(token)
        run.see(len(collected), *collected)
