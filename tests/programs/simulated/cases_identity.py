"""Arguments that are, or share memory with, what the module and the globals hold: in some calls only."""
import types
from types import SimpleNamespace

import torch
from bed import case
from tiny import Net, data, net

KNOWN = [None]
SEEN = {}


class Remembering(Net):
    """An answer that is known already is not computed again."""

    def __init__(self):
        super().__init__()
        self.known, self.answer = None, None

    def forward(self, x):
        if x is self.known:
            return self.answer * 1
        return super().forward(x)


def remembering(run, first):
    model, x = net(Remembering), data(1)
    object.__setattr__(model, "known", x)
    object.__setattr__(model, "answer", torch.full((3, 8), 7.0, device="cuda"))
    for i in range(16):
        is_known = (i < 8) == first
        run(model, x if is_known else data(1))


@case("(eer{6}){2}")
def argument_is_what_the_module_holds(run):
    remembering(run, True)


@case("(eer{6}){2}")
def argument_becomes_what_the_module_holds(run):
    remembering(run, False)


class Looking(Net):
    def forward(self, x):
        y = super().forward(x)
        return y * 5 if x is KNOWN[0] else y


def looking(run, first):
    model, x = net(Looking), data(1)
    KNOWN[0] = x
    for i in range(16):
        run(model, x if (i < 8) == first else data(1))
    KNOWN[0] = None


@case("eer{6}e{8}")
def argument_is_what_a_global_holds(run):
    looking(run, True)


@case("eer{6}e{8}")
def argument_becomes_what_a_global_holds(run):
    looking(run, False)


class OfAList(Net):
    """The argument is a list that the module knows as well."""

    def forward(self, x, names):
        return super().forward(x) * (3 if names is self.names else 2)


@case("(eer{6}){2}")
def list_is_what_the_module_holds(run):
    model = net(OfAList)
    model.names = ["a", "b"]
    for i in range(16):
        run(model, data(i), model.names if i < 8 else ["a", "b"])


class Setting(Net):
    """Sets what it reads, by another way if that is the same."""

    config = None

    def forward(self, x, options, config=None):
        before, options["scale"] = options["scale"], 4.0
        y = super().forward(x) * (config or self.config).scale
        options["scale"] = before
        return y


def setting(run, of_argument, first):
    model = net(Setting)
    model.config = SimpleNamespace(scale=1.0)
    for i in range(16):
        config = SimpleNamespace(scale=1.0) if of_argument else None
        options = vars(config or model.config)
        run(model, data(i), options if (i < 8) == first else dict(options), config)


@case("(eer{6}){2}")
def argument_is_the_vars_of_what_the_module_holds(run):
    setting(run, False, True)


@case("(eer{6}){2}")
def argument_becomes_the_vars_of_what_the_module_holds(run):
    setting(run, False, False)


@case("(eer{6}){2}")
def argument_is_the_vars_of_another_one(run):
    setting(run, True, True)


@case("(eer{6}){2}")
def argument_becomes_the_vars_of_another_one(run):
    setting(run, True, False)


class Settings:
    pass


class SettingOne(Net):
    def forward(self, x, a, b):
        a.scale = 3.0
        return super().forward(x) * b.scale


@case("(eer{4}){2}r{6}")  # fewer replays than lead to a look at whether they pay
def arguments_share_their_attributes(run):
    model = net(SettingOne)
    for i in range(18):
        a, b = Settings(), Settings()
        a.scale = b.scale = 1.0
        if i < 6 or (i >= 12 and i % 2):
            b.__dict__ = a.__dict__
        run(model, data(i), a, b)
        run.see(a.scale, b.scale)


class Writing(Net):
    """Writes to its argument, then reads its weight."""

    def forward(self, x):
        x.add_(1)
        return torch.relu(self.second.weight + 0.5) * 2


@case("(eer{6}){2}")
def argument_is_a_weight(run):
    model = net(Writing)
    for i in range(16):
        run(model, model.second.weight.data if i < 8 else torch.ones(8, 16, device="cuda"))
        run.see(model.second.weight)


@case("(eer{6}){2}")
def argument_becomes_a_weight(run):
    model = net(Writing)
    for i in range(16):
        run(model, torch.ones(8, 16, device="cuda") if i < 8 else model.second.weight.data)
        run.see(model.second.weight)


@case("(eer{6}){2}")
def argument_is_a_part_of_a_weight(run):
    class Reading(Net):
        def forward(self, x):
            return self.second(torch.relu(self.first(x)))

    model = net(Reading)
    for i in range(16):
        run(model, model.first.weight.data[0:3] if i < 8 else data(i))


@case("eer{6}e{8}")
def argument_is_a_tensor_of_a_global(run):
    class Adding(Net):
        def forward(self, x):
            x.add_(1)
            return KNOWN[0] * 2 + x

    model = net(Adding)
    KNOWN[0] = data(1)
    for i in range(16):
        run(model, KNOWN[0] if i < 8 else data(i))
        run.see(KNOWN)
    KNOWN[0] = None


# What is known by the address of an object.
@case("e{4,16}p{0,12}")
def seen_by_identity(run):
    class Seeing(Net):
        def forward(self, x):
            y = super().forward(x)
            if id(x) not in SEEN:
                SEEN[id(x)] = 1
            return y

    SEEN.clear()
    model, kept = net(Seeing), [data(1)]
    for i in range(16):
        if i >= 8:
            kept.append(data(1))
        run(model, kept[-1])
    run.see(len(SEEN))


@case("e{4,16}p{0,12}")
def scaled_by_identity(run):
    class Scaling(Net):
        def forward(self, x):
            return super().forward(x) * SEEN.get(id(x), 1.0)

    SEEN.clear()
    model, known, other = net(Scaling), data(1), data(1)
    SEEN[id(known)] = 3.0
    for i in range(16):
        run(model, known if i < 8 else other)


class Handing(Net):
    """Returns an object of its own."""

    def forward(self, x):
        return super().forward(x), self.table


def handing(run, make, is_gone=False):
    model = net(Handing)
    model.table = make()
    for i in range(16):
        if i == 8 and not is_gone:
            kept, model.table = model.table, make()
        elif i == 8:
            model.table = None
            model.table = make()
            made = [make() for _ in range(1000)]  # where the old one was
        result = run(model, data(i))
        run.see(result[1] is model.table, result[1])


@case("(eer{6}){2}")
def returned_object_is_replaced_by_an_equal_one(run):
    handing(run, lambda: {"n": 0, "list": [1, 2]})


@case("(eer{6}){2}")
def returned_object_is_freed(run):
    handing(run, lambda: {"n": 0, "list": [1, 2]}, is_gone=True)


@case("(eer{4}){2}", reason="an object was replaced by an equal one (list)")
def global_is_replaced_by_an_equal_one(run):
    class Marked(Net):
        def forward(self, x):
            y = super().forward(x)
            return y * 2 if self.mode is SEEN["mark"] else y

    model = net(Marked)
    model.mode = SEEN["mark"] = [1]
    for i in range(12):
        if i == 6:
            SEEN["mark"] = [1]
        run(model, data(i))
    SEEN.clear()


def twice(x):
    return x * 2


@case("(eer{4}){2}", reason="an object was replaced by an equal one (function)")
def returned_function_of_a_global_is_replaced(run):
    class HandingOut(Net):
        def forward(self, x):
            return super().forward(x), SEEN["function"]

    model = net(HandingOut)
    for i in range(12):
        if i % 6 == 0:
            SEEN["function"] = types.FunctionType(twice.__code__, globals())
        x = data(i)
        before = torch._C._operators_run()
        function = model(x)[1]
        run.calls.append(torch._C._operators_run() - before)
        run.see(function is SEEN["function"])
    SEEN.clear()


class Likeness:
    """Instances look alike."""


FAST, SLOW = Likeness(), Likeness()
BY_OBJECT = {FAST: 2.0, SLOW: 3.0}


def modes(run, scale):
    class Choosing(Net):
        def forward(self, x):
            return super().forward(x) * scale(self.mode)

    model = net(Choosing)
    for i in range(24):
        model.mode = SLOW if i // 8 % 2 else FAST
        run(model, data(i))


@case("(eer{6}){2}r{8}")
def module_holds_another_object_that_looks_alike(run):
    modes(run, lambda mode: 2.0 if mode is FAST else 3.0)


@case("(eer{6}){2}r{8}")
def module_holds_another_key_that_looks_alike(run):
    modes(run, lambda mode: BY_OBJECT[mode])
