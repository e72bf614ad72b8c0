"""Functions that GRAPE_REGIONS names: what their globals, closures, defaults and code hold, changed from outside and by
themselves. simulated_test.py says which are named: all called region_*."""
import torch
from bed import case
from tiny import Net, data, net
from torch import nn

MODEL = TABLE = LAST = None
SCALE, COUNT, NAMES = 1.0, 0, []


def calling(run, function, changes=None, calls=8, **names):
    """Sets the function's globals, and calls function(x); `changes[i]` is done before call i."""
    function.__globals__.update({"MODEL": net(), "SCALE": 1.0, "COUNT": 0, "NAMES": [], **names})
    for i in range(calls):
        if changes and i in changes:
            changes[i]()
        run(function, data(i))


def setting(name, value):
    return lambda: globals().update({name: value})


def region_of_a_global(x):
    return MODEL(x) * SCALE


@case("eer{6}")
def function_of_a_global_model(run):
    calling(run, region_of_a_global)


@case("eer{3}eer{3}eer{3}")
def global_number_of_a_function_changes(run):
    calling(run, region_of_a_global, {5: setting("SCALE", 2.0), 10: setting("SCALE", 1.0)}, 15)


@case("eer{3}eer{3}")
def global_model_of_a_function_is_replaced(run):
    torch.manual_seed(5)
    calling(run, region_of_a_global, {5: setting("MODEL", Net().cuda().eval())}, 10)


def replaced_data():
    MODEL.first.weight.data = MODEL.first.weight.data * 2


def replaced_parameter():
    MODEL.second.bias = nn.Parameter(torch.ones(8, device="cuda"), requires_grad=False)


def written_in_place():
    MODEL.second.bias.data.add_(1)


class Trained(Net):
    def forward(self, x):
        return super().forward(x) * (2 if self.training else 1)


@case("eer{3}(?:eer{2}){3}r{3}")
def model_of_a_function_changes(run):
    changes = {5: lambda: MODEL.train(), 9: replaced_data, 13: replaced_parameter, 17: written_in_place}
    calling(run, region_of_a_global, changes, 20, MODEL=net(Trained))


def region_with_a_table(x):
    return MODEL(x) + TABLE


@case("eer{3}eer{3}r{2}")
def global_tensor_of_a_function_is_replaced(run):
    kept = torch.ones(8, device="cuda")  # alive all the time
    changes = {5: setting("TABLE", torch.ones(8, device="cuda") * 3), 10: lambda: TABLE.mul_(2)}
    calling(run, region_with_a_table, changes, 12, TABLE=kept)
    run.see(kept)


def region_with_a_cpu_tensor(x):
    return MODEL(x) * TABLE.item()


@case("eer{3}eer{3}")
def cpu_tensor_of_a_function_changes(run):
    calling(run, region_with_a_cpu_tensor, {5: lambda: TABLE.add_(1)}, 10, TABLE=torch.ones(1))


def made(scale=1.0):
    model, table, count = None, None, 0

    def region_in_a_closure(x):
        return model(x) * scale + table

    def region_that_counts_in_a_closure(x):
        nonlocal count
        count += 1
        return model(x) * count

    def give(new_model, new_table, new_scale=1.0):
        nonlocal model, table, scale, count
        model, table, scale, count = new_model, new_table, new_scale, 0

    return region_in_a_closure, region_that_counts_in_a_closure, give


region_in_a_closure, region_that_counts_in_a_closure, give = made()


@case("eer{6}")
def function_with_a_closure(run):
    give(net(), torch.ones(8, device="cuda"))
    calling(run, region_in_a_closure)


@case("eer{3}eer{3}eer{3}eer{3}")
def closure_of_a_function_changes(run):
    model, tables = net(), [torch.ones(8, device="cuda") * i for i in range(2)]

    def swap():
        model.second.weight.data = model.second.weight.data * 3

    give(model, tables[0])
    changes = {5: lambda: give(model, tables[1]), 10: lambda: give(model, tables[1], 2.0), 15: swap}
    calling(run, region_in_a_closure, changes, 20)


@case("[ep]{8}")
def function_counts_in_its_closure(run):
    give(net(), None)
    calling(run, region_that_counts_in_a_closure)


def region_that_counts(x):
    global COUNT
    COUNT += 1
    return MODEL(x) * COUNT


@case("[ep]{8}")
def function_counts_in_a_global(run):
    calling(run, region_that_counts)
    run.see(COUNT)


def region_that_appends(x):
    NAMES.append(len(NAMES))
    return MODEL(x)


@case("[ep]{8}")
def function_appends_to_a_global(run):
    calling(run, region_that_appends)
    run.see(NAMES)


def region_with_attributes(x):
    region_with_attributes.calls += 1
    return MODEL(x)


region_with_attributes.calls = 0


@case("[epr]{8}")
def function_counts_in_itself(run):
    region_with_attributes.calls = 0
    calling(run, region_with_attributes)
    run.see(region_with_attributes.calls)


def region_with_a_list(x, seen=[]):  # noqa: B006
    seen.append(1)
    return MODEL(x) * len(seen)


@case("[ep]{8}")
def function_counts_in_its_defaults(run):
    region_with_a_list.__defaults__[0].clear()
    calling(run, region_with_a_list)


def region_with_defaults(x, scale=2.0, *, shift=1.0):
    return MODEL(x) * scale + shift


@case("eer{3}eer{3}eer{3}")
def defaults_of_a_function_change(run):
    def defaults():
        region_with_defaults.__defaults__ = (3.0,)

    def keyword_defaults():
        region_with_defaults.__kwdefaults__["shift"] = 4.0

    region_with_defaults.__defaults__, region_with_defaults.__kwdefaults__ = (2.0,), {"shift": 1.0}
    calling(run, region_with_defaults, {5: defaults, 10: keyword_defaults}, 15)


@case("eer{2}eer{2}r{3}")
def function_with_keywords(run):
    globals().update(MODEL=net())
    region_with_defaults.__defaults__, region_with_defaults.__kwdefaults__ = (2.0,), {"shift": 1.0}
    for i in range(4):
        run(region_with_defaults, data(i), scale=3.0, shift=0.5)
    for i in range(4):
        run(region_with_defaults, data(i), shift=float(i // 4))
    for i in range(3):
        run(region_with_defaults, data(i), scale=3.0, shift=0.5)


def region_patched(x):
    return MODEL(x)


def patch(x):
    return MODEL(x) * 5


@case("eer{3}eer{3}(?:rr|ee)r")
def code_of_a_function_is_replaced(run):
    before = region_patched.__code__

    def replace(code):
        return lambda: setattr(region_patched, "__code__", code)

    calling(run, region_patched, {5: replace(patch.__code__), 10: replace(before)}, 13)


# The other one is no region, the model inside of it is; unless it was found under its new name meanwhile.
@case("eer{3}ee[ep]r{3}")
def name_of_a_function_is_given_to_another(run):
    before = region_patched
    globals().update(MODEL=net())
    for i in range(11):
        if i in (5, 8):
            globals().update(region_patched=patch if i == 5 else before)
        run(region_patched, data(i))


def region_that_names_others(x):
    return patch(MODEL(x))


@case("eer{3}eer{3}")
def function_that_a_function_calls_is_patched(run):
    before = patch

    def other(x):
        return x + 7

    calling(run, region_that_names_others, {5: setting("patch", other)}, 10, MODEL=lambda x: x * 2, patch=before)
    globals().update(patch=before)


def region_that_compares(x):
    return MODEL(x) if x is LAST else MODEL(x) * 2


@case("eer{3}[er]{4}")
def argument_is_a_global_of_a_function(run):
    globals().update(MODEL=net(), LAST=None)
    for i in range(9):
        x = data(i)
        if i >= 5:
            globals().update(LAST=x)
        run(region_that_compares, x)
    globals().update(LAST=None)


def region_that_returns_globals(x):
    return MODEL(x), TABLE, TABLE[1:]


@case("[ep]{8}")
def function_returns_a_global_tensor(run):
    calling(run, region_that_returns_globals, TABLE=torch.ones(4, device="cuda"))


def region_that_keeps(x):
    global LAST
    LAST = MODEL(x)
    return LAST * 2


@case("[ep]{8}")
def function_keeps_its_result(run):
    calling(run, region_that_keeps)
    run.see(LAST)
    globals().update(LAST=None)


def region_that_writes(x):
    TABLE.add_(1)
    return MODEL(x) * TABLE


@case("eer{6}")
def function_counts_in_device_memory(run):
    calling(run, region_that_writes, TABLE=torch.ones(8, device="cuda"))
    run.see(TABLE)


def comparing():
    last = None

    def region_that_compares_with_its_closure(x):
        return x * 3 if x is last else MODEL(x) + last[: len(x)]

    def region_that_writes_to_its_closure(x):
        last.add_(1)
        return MODEL(x) * 2

    def keep(new):
        nonlocal last
        last = new

    return region_that_compares_with_its_closure, region_that_writes_to_its_closure, keep


region_that_compares_with_its_closure, region_that_writes_to_its_closure, keep = comparing()


# Which argument the closure holds is part of the signature.
@case("eer{3}[er]{4}eer")
def argument_is_in_the_closure(run):
    globals().update(MODEL=net())
    kept = data(50)
    keep(kept)
    for i in range(12):
        run(region_that_compares_with_its_closure, data(i) if i < 5 or i > 8 else kept)
        if i == 8:
            keep(data(51))


# So is which of its memory.
@case("eer{3}eer{2}r{3}eer")
def argument_is_memory_of_the_closure(run):
    globals().update(MODEL=net())
    base = torch.ones(4, 8, device="cuda")
    keep(base)
    for i in range(15):
        run(region_that_writes_to_its_closure, data(i) if i < 5 or 9 <= i < 12 else base[:3] if i < 9 else base[1:])
        run.see(base)
