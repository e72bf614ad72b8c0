"""The module, its weights and what its code names, changed from outside between calls."""
import builtins
import functools
import types

import torch
from bed import case
from tiny import Net, data, net
from torch import nn
from torch.nn import functional

SCALE = 1.0


def helper(x):
    return x * 2


def changing(run, kind, changes, calls=16, model=None):
    """Calls a model; `changes[i]` is done before call i."""
    model = model or net(kind)
    for i in range(calls):
        if i in changes:
            changes[i](model)
        run(model, data(i))
    return model


def setting(name, value):
    return lambda model: setattr(model, name, value)


class Flagged(Net):
    def forward(self, x):
        return super().forward(x) if self.flag else super().forward(x) + 1


@case("eer{6}eer{2}(?:ee|rr)r{2}", group="usual")
def flag_flipped(run):
    changing(run, Flagged, {8: setting("flag", True), 12: setting("flag", False)})


class Viewing(Net):
    """Its settings are a read-only view of a dictionary that others change."""

    def __init__(self):
        super().__init__()
        self.set = {"scale": 1.0, "more": [0.0]}
        self.settings, self.items = types.MappingProxyType(self.set), self.set.items()

    def forward(self, x, other=None):
        settings = other or self.settings
        return super().forward(x) * settings["scale"] + sum(value[0] for name, value in self.items if name == "more")


@case("eer{6}eer{2}(?:ee|rr)r{2}")
def changed_behind_a_view(run):
    changing(
        run,
        Viewing,
        {
            8: lambda model: model.set.update(scale=2.0, more=[1.0]),
            12: lambda model: model.set.update(scale=1.0, more=[0.0]),
        },
    )


@case("eer{2}(?:eer{2}){2}")
def arguments_behind_a_view(run):
    model, behind = net(Viewing), {"scale": 1.0}
    for i in range(12):
        behind["scale"] = (1.0, 2.0, 3.0)[i // 4]
        run(model, data(i), types.MappingProxyType(behind))


class Scaled(Net):
    def forward(self, x):
        return super().forward(x) * SCALE


@case("eer{6}eer{2}(?:ee|rr)r{2}", group="usual")
def global_changed(run):
    def set_scale(value):
        def change(_):
            global SCALE
            SCALE = value

        return change

    changing(run, Scaled, {8: set_scale(2.0), 12: set_scale(1.0)})


@functools.lru_cache(None)
def cached_settings():
    return {"scale": SCALE}


@functools.lru_cache(maxsize=8)
def cached_table(size):
    return torch.ones(size, device="cuda") * SCALE


class Caching(Net):
    def forward(self, x):
        return super().forward(x) * cached_settings()["scale"] + cached_table(8)


@case("eer{3}(?:eer{3}|e{3}r{2}){4}")
def cached_results_are_renewed(run):
    def renew(scale):
        def change(_):
            global SCALE
            SCALE = scale
            cached_settings.cache_clear()
            cached_table.cache_clear()
            kept.append(cached_table(8))
            cached_settings()

        return change

    kept = []
    renew(1.0)(None)
    changes = {
        5: renew(2.0),
        10: lambda _: cached_settings().update(scale=3.0),
        15: renew(1.0),
        20: lambda _: cached_table(4),
    }
    changing(run, Caching, changes, calls=25)


class Settings:
    class Inner:
        scale, table = 1.0, None

        class Innermost:
            shift = 0.0


class Settled(Net):
    def forward(self, x):
        return super().forward(x) * Settings.Inner.scale + Settings.Inner.table + Settings.Inner.Innermost.shift


@case("eer{3}(?:eer{3}){3}")
def class_inside_of_a_class_changed(run):
    tables = [torch.ones(8, device="cuda") * i for i in range(2)]
    Settings.Inner.scale, Settings.Inner.table, Settings.Inner.Innermost.shift = 1.0, tables[0], 0.0
    changes = {
        5: lambda _: setattr(Settings.Inner, "scale", 2.0),
        10: lambda _: setattr(Settings.Inner, "table", tables[1]),
        15: lambda _: setattr(Settings.Inner.Innermost, "shift", 1.0),
    }
    changing(run, Settled, changes, calls=20)


@case("eer{6}eer{6}", group="usual")
def closure_changed(run):
    scale = 1.0

    class Closed(Net):
        def forward(self, x):
            return super().forward(x) * scale

    def change(_):
        nonlocal scale
        scale = 3.0

    changing(run, Closed, {8: change})


@case("eer{6}eer{6}")
def default_changed(run):
    class Defaulted(Net):
        def forward(self, x, scale=2.0):
            return super().forward(x) * scale

    def change(_):
        Defaulted.forward.__defaults__ = (3.0,)

    changing(run, Defaulted, {8: change})


@case("eer{6}eer{6}")
def code_changed(run):
    class Coded(Net):
        def forward(self, x):
            return torch.relu(x)

    def change(_):
        Coded.forward.__code__ = (lambda self, x: torch.relu(x) * 2).__code__

    changing(run, Coded, {8: change})


@case("eer{6}eer{6}")
def class_attribute_changed(run):
    class Classy(Net):
        factor = 2.0

        def forward(self, x):
            return super().forward(x) * self.factor

    changing(run, Classy, {8: lambda _: setattr(Classy, "factor", 5.0)})


@case("eer{6}eer{6}")
def class_attribute_hidden(run):
    class Hiding(Net):
        factor = 2.0

        def forward(self, x):
            return super().forward(x) * self.factor

    changing(run, Hiding, {8: setting("factor", 5.0)})


@case("eer{6}eer{6}")
def class_exchanged(run):
    class Other(Net):
        def forward(self, x):
            return super().forward(x) * 7

    changing(run, Net, {8: setting("__class__", Other)})


@case("eer{6}eer{6}")
def helper_replaced(run):
    class Helped(Net):
        def forward(self, x):
            return helper(super().forward(x))

    old = helper

    def change(_):
        globals()["helper"] = lambda x: x * 5

    changing(run, Helped, {8: change})
    globals()["helper"] = old


@case("eer{6}eer{2}(?:ee|rr)r{2}")
def library_function_replaced(run):
    class Functional(Net):
        def forward(self, x):
            return functional.relu(super().forward(x))

    old = functional.relu
    changing(
        run,
        Functional,
        {8: lambda _: setattr(functional, "relu", lambda x: x * 5), 12: lambda _: setattr(functional, "relu", old)},
    )


@case("eer{6}eer{2}(?:ee|rr)r{2}")
def torch_function_replaced(run):
    old = torch.relu
    changing(
        run, Net, {8: lambda _: setattr(torch, "relu", lambda x: x * 5), 12: lambda _: setattr(torch, "relu", old)}
    )


@case("eer{6}eer{2}(?:ee|rr)r{2}")
def tensor_method_replaced(run):
    class Method(Net):
        def forward(self, x):
            return super().forward(x).relu()

    def change(_):
        torch.Tensor.relu = lambda x: x * 5

    def restore(_):
        del torch.Tensor.relu

    changing(run, Method, {8: change, 12: restore})


@case("eer{6}eer{2}")
def builtin_replaced(run):
    class Building(Net):
        def forward(self, x):
            return super().forward(x) * max(1, 2)

    old = builtins.max
    changing(run, Building, {8: lambda _: setattr(builtins, "max", lambda *_: 9)}, calls=12)
    builtins.max = old


@case("eer{6}eer{6}")
def forward_replaced_on_the_object(run):
    changing(run, Net, {8: setting("forward", lambda x: x + 1)})


@case("eer{6}eer{2}(?:ee|rr)r{2}")
def forward_replaced_on_the_class(run):
    class Replaced(Net):
        def forward(self, x):
            return super().forward(x)

    old = Replaced.forward

    def change(_):
        Replaced.forward = lambda self, x: old(self, x) * 4

    def restore(_):
        Replaced.forward = old

    changing(run, Replaced, {8: change, 12: restore})


@case("eer{6}eer{2}(?:ee|rr)r{2}")
def forward_of_a_layer_replaced(run):
    old = nn.Linear.forward

    def change(_):
        nn.Linear.forward = lambda self, x: old(self, x) * 4

    def restore(_):
        nn.Linear.forward = old

    changing(run, Net, {8: change, 12: restore})


@case("eer{6}eer{6}")
def layer_replaced(run):
    changing(run, Net, {8: lambda model: setattr(model, "first", net().first)})


@case("eer{6}eer{6}")
def layer_appended(run):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).cuda()
    changing(run, None, {8: lambda m: m.add_module("2", nn.ReLU())}, model=model)


# With a hook nothing of the module is replayed; its neighbours may be.
@case("eer{6}[ep]{8}")
def hook_added(run):
    seen = []
    changing(run, Net, {8: lambda m: m.second.register_forward_hook(lambda *_: seen.append(1))})
    run.see(len(seen))


@case("eer{6}[ep]{8}")
def hook_added_before(run):
    seen = []
    changing(run, Net, {8: lambda m: m.register_forward_pre_hook(lambda m, a: (seen.append(1), a[0] * 2)[1])})
    run.see(len(seen))


@case("eer{6}[ep]{8}")
def hook_of_all_modules_added(run):
    seen, handles = [], []

    def add(_):
        handles.append(nn.modules.module.register_module_forward_hook(lambda *_: seen.append(1)))

    changing(run, Net, {8: add, 12: lambda _: handles[0].remove()})
    run.see(len(seen))


@case("eer{6}eer{2}(?:ee|rr)r{2}")
def training_switched(run):
    class Training(Net):
        def forward(self, x):
            return super().forward(x) * (2 if self.training else 1)

    changing(run, Training, {8: lambda m: m.train(), 12: lambda m: m.eval()})


# What is a symbol in the program, or in memory, may change.
@case("eer{14}", group="usual")
def weight_changed_in_place(run):
    changing(run, Net, {6: lambda m: m.first.weight.mul_(1.5), 9: lambda m: m.second.bias.add_(1)})


@case("eer{14}")
def state_loaded_in_place(run):
    other = net()
    other.first.weight.mul_(2)
    changing(run, Net, {8: lambda m: m.load_state_dict(other.state_dict())})


@case("eer{6}eer{6}")
def weight_replaced(run):
    changing(run, Net, {8: setting_weight(lambda w: nn.Parameter(torch.ones(16, 8, device="cuda")))})


def setting_weight(make):
    def change(model):
        model.first.weight = make(model.first.weight)

    return change


def swapping_data(make):
    def change(model):
        model.first.weight.data = make(model.first.weight.data)

    return change


@case("eer{6}eer{6}")
def weight_data_swapped(run):
    changing(run, Net, {8: swapping_data(lambda w: w * 2)})


# The old weight's memory is given to the new one, or to somebody else.
@case("eer{6}eer{2}(?:ee|rr)r{2}")
def weight_memory_reused(run):
    def reuse(model):
        shape = model.first.weight.shape
        model.first.weight.data = torch.ones(1, device="cuda")
        taken = [torch.full(shape, -1.0, device="cuda") for _ in range(4)]
        model.first.weight.data = torch.full(shape, 0.25, device="cuda")
        model.taken = len(taken)

    changing(run, Net, {8: reuse, 12: reuse})


@case("eer{6}eer{6}")
def weight_of_other_strides(run):
    changing(run, Net, {8: swapping_data(lambda w: w.t().contiguous().t())})


@case("eer{6}eer{6}")
def moved_to_the_host_and_back(run):
    changing(run, Net, {8: lambda m: m.cpu().cuda()})


@case("eer{6}eer{6}")
def weights_tied(run):
    changing(run, Net, {8: lambda m: setattr(m.second, "bias", nn.Parameter(m.second.weight[0, :8].data, False))})
