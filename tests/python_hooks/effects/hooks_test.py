"""Modules with forward hooks: those that only compute are part of the call, those that leave something behind are
found, wherever they leave it. Tensors are on the CPU, and stand for a device's."""
import functools
import threading
import unittest

from outcome import Check, Observed, aligned, main, torch

COUNTS = {"calls": 0}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.note = "note"

    def forward(self, x, scale=1.0):
        return self.second(torch.relu(self.first(x))) * scale


class Recorder:
    total = 0

    def __init__(self):
        self.kept, self.scale = None, 2.0

    def __call__(self, module, arguments, output):
        return output * self.scale

    def scaled(self, module, arguments, output):
        return output * self.scale

    def keep(self, module, arguments, output):
        self.kept = output

    def keep_shape(self, module, arguments, output):
        self.kept = (self.kept or 0) + output.shape[0]

    def count(self, module, arguments, output):
        Recorder.total += 1


class CountingCalls(Recorder):
    def __call__(self, module, arguments, output):
        self.calls = getattr(self, "calls", 0) + 1


def hooked(register=lambda model: model.second.register_forward_hook, hook=None, **keywords):
    model = Net().eval().requires_grad_(False)
    register(model)(hook, **keywords)
    return model


def pre_hook_of_second(model):
    return model.second.register_forward_pre_hook


def own_hook(model):
    return model.register_forward_hook


def own_pre_hook(model):
    return model.register_forward_pre_hook


def times(factor, module, arguments, output):
    return output * factor


def closure():
    scale, names = 3.0, ["a", "b"]

    def hook(module, arguments, output):
        return output * scale if len(names) == 2 else None

    return hook


def nonlocal_count():
    count = 0

    def hook(module, arguments, output):
        nonlocal count
        count += 1

    return hook


def appends(kept):
    return lambda module, arguments, output: kept.append(output.shape[0])


def keeps(kept):
    return lambda module, arguments, output: kept.update(last=output)


def keeps_in_a_default(module, arguments, output, kept=[]):
    kept.append(1)


def counts_on_itself(module, arguments, output):
    counts_on_itself.calls += 1


counts_on_itself.calls = 0


def counts_on_the_module(module, arguments, output):
    module.calls = getattr(module, "calls", 0) + 1


def keeps_on_the_module(module, arguments, output):
    module.last = output


def fills_a_buffer(buffer):
    return lambda module, arguments, output: buffer.copy_(output) is None


def changes_in_place(module, arguments, output):
    output.add_(1)


def removes_itself():
    model = hooked(hook=lambda *_: handle.remove())
    handle = model.second.register_forward_hook(lambda module, arguments, output: output * 2)
    return model


RIGHT = {
    "nothing": lambda: hooked(hook=lambda *_: None),
    "replaces the output": lambda: hooked(hook=lambda module, arguments, output: output * 2),
    "replaces the call's output": lambda: hooked(own_hook, lambda module, arguments, output: {"out": output, "n": 3}),
    "replaces the input": lambda: hooked(pre_hook_of_second, lambda module, arguments: (arguments[0] + 1,)),
    "replaces the call's input": lambda: hooked(own_pre_hook, lambda module, arguments: (arguments[0] + 1,)),
    "with keywords": lambda: hooked(
        own_pre_hook, lambda module, arguments, keywords: (arguments, {"scale": 3.0}), with_kwargs=True
    ),
    "hook with keywords": lambda: hooked(own_hook, lambda m, a, keywords, out: out + len(keywords), with_kwargs=True),
    "always called": lambda: hooked(own_hook, lambda module, arguments, output: output + 1, always_call=True),
    "changes the output in place": lambda: hooked(hook=changes_in_place),
    "fills a buffer": lambda: hooked(hook=fills_a_buffer(torch.zeros(2, 4))),
    "closure": lambda: hooked(hook=closure()),
    "partial": lambda: hooked(hook=functools.partial(times, 2.0)),
    "bound method": lambda: hooked(hook=Recorder().scaled),
    "object that can be called": lambda: hooked(hook=Recorder()),
}
LEFT_BEHIND = {
    "count in a cell": lambda: hooked(hook=nonlocal_count()),
    "list in a cell": lambda: hooked(hook=appends([])),
    "list in a cell that had something": lambda: hooked(hook=appends([1, 2])),
    "tensor in a cell": lambda: hooked(hook=keeps({})),
    "tensor in a cell that had one": lambda: hooked(hook=keeps({"last": torch.zeros(2, 4)})),
    "list in a default": lambda: hooked(hook=keeps_in_a_default),
    "list of a partial": lambda: hooked(hook=functools.partial(lambda kept, *_: kept.append(1), [])),
    "attribute of the hook": lambda: hooked(hook=counts_on_itself),
    "attribute of the module": lambda: hooked(hook=counts_on_the_module),
    "tensor on the module": lambda: hooked(hook=keeps_on_the_module),
    "tensor on the bound object": lambda: hooked(hook=Recorder().keep),
    "number on the bound object": lambda: hooked(hook=Recorder().keep_shape),
    "attribute of the bound object's class": lambda: hooked(hook=Recorder().count),
    "object that counts": lambda: hooked(hook=CountingCalls()),
    "pre-hook": lambda: hooked(pre_hook_of_second, lambda module, arguments: counts_on_the_module(module, arguments, 0)),
    "weight made anew": lambda: torch.nn.utils.spectral_norm(Net().train().requires_grad_(False).second),
    "removes itself": removes_itself,
}


def batch():
    return (aligned(torch.arange(8.0).reshape(2, 4)),)


class Hooks(Check):
    def test_right(self):
        for name, make in RIGHT.items():
            with self.subTest(name):
                model = make()
                self.check(lambda x: model(x), batch, model)  # noqa: B023

    def test_left_behind(self):
        for name, make in LEFT_BEHIND.items():
            with self.subTest(name):
                model = make()
                for _ in range(1 if name == "removes itself" else 3):
                    observed = Observed(lambda x: model(x), batch(), model)  # noqa: B023
                    self.assertIn("the call changed the module: module", observed.reason() or "learned")

    def test_kept_output(self):
        """In the result, too. Where it lies where the last one lay nothing here tells the two apart, and it counts as the
        module's; that memory was made and kept, the allocator's events say (replay/recipes.cc, case
        hook_keeps_output)."""
        kept = {}
        model = hooked(pre_hook_of_second, lambda module, arguments: kept.clear())
        model.second.register_forward_hook(lambda module, arguments, output: kept.update(last=output))
        model.register_forward_hook(lambda module, arguments, output: kept["last"])
        for _ in range(8):
            last = kept["last"].data_ptr() if kept else None
            observed = Observed(lambda x: model(x), batch(), model)
            reason = observed.reason()
            if kept["last"].data_ptr() == last:
                self.assertEqual((reason, observed.made()), (None, []))
            else:
                self.assertTrue("changed the module" in reason or "also referred to from elsewhere" in reason, reason)
            del observed  # with its result

    def test_not_walked(self):
        lock = threading.Lock()
        model = hooked(hook=lambda *_: lock.locked())
        reason = Observed(lambda x: model(x), batch(), model).reason()
        self.assertRegex(reason, r"module\.second\._forward_hooks\[\d+\].*: a _thread\.lock")

    def test_backward_hooks(self):
        for register in ("register_full_backward_hook", "register_full_backward_pre_hook"):
            model = hooked(lambda m: getattr(m.second, register), lambda *_: None)  # noqa: B023
            self.assertIn("module.second: has hooks (_backward_", Observed(lambda x: model(x), batch(), model).reason())


if __name__ == "__main__":
    main()
