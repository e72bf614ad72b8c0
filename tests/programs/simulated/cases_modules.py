"""Python modules that hold settings and counts: reached by name, by an alias, through an object."""
import sys

import this_helper
import torch
from bed import case
from tiny import Net, data, net
from torch.nn import functional

MODULES = [this_helper]


def reading(run, read, config=None):
    """A model that multiplies by what `read(model)` gives; the helper's value is another from call 8 on."""

    class Reading(Net):
        def forward(self, x):
            return super().forward(x) * read(self)

    this_helper.VALUE = 2.0
    model = net(Reading)
    model.config = config
    for i in range(16):
        if i == 8:
            this_helper.VALUE = 3.0
        run(model, data(i))


def writing(run, write, see, config=None):
    class Writing(Net):
        def forward(self, x):
            y = super().forward(x)
            write(self, y)
            return y

    this_helper.CALLS = 0
    this_helper.LAST = None
    model = net(Writing)
    model.config = config
    for i in range(8):
        run(model, data(i))
        run.see(see())


@case("(eer{6}){2}")
def value_of_a_module(run):
    reading(run, lambda _: this_helper.VALUE)


@case("(eer{6}){2}")
def value_of_a_module_imported_inside(run):
    def read(_):
        import this_helper as helper

        return helper.VALUE

    reading(run, read)


@case("(eer{6}){2}")
def value_imported_inside(run):
    def read(_):
        from this_helper import VALUE

        return VALUE

    reading(run, read)


@case("[ep]{16}")
def value_of_a_module_in_an_attribute(run):
    reading(run, lambda model: model.config.VALUE, this_helper)


@case("[ep]{16}")
def value_of_a_module_in_a_list(run):
    reading(run, lambda _: MODULES[0].VALUE)


@case("(eer{6}){2}")
def value_of_a_module_by_getattr(run):
    reading(run, lambda _: getattr(this_helper, "VAL" + "UE"))


@case("(eer{6}){2}")
def value_of_a_module_by_an_alias(run):
    def read(_):
        helper = this_helper
        return helper.VALUE

    reading(run, read)


@case("(eer{6}){2}")
def value_of_a_module_by_its_dictionary(run):
    reading(run, lambda _: vars(this_helper)["VALUE"])


@case("[ep]{16}")
def value_of_a_module_of_sys(run):
    reading(run, lambda _: sys.modules["this_helper"].VALUE)


@case("[ep]{16}")
def value_of_a_module_as_an_argument(run):
    class Reading(Net):
        def forward(self, x, config):
            return super().forward(x) * config.VALUE

    this_helper.VALUE = 2.0
    model = net(Reading)
    for i in range(16):
        if i == 8:
            this_helper.VALUE = 3.0
        run(model, data(i), this_helper)


@case("[ep]{8}")
def counts_in_a_module_imported_inside(run):
    def count(*_):
        import this_helper as helper

        helper.CALLS += 1

    writing(run, count, lambda: this_helper.CALLS)


@case("[ep]{8}")
def counts_in_a_module_in_an_attribute(run):
    def count(model, _):
        model.config.CALLS += 1

    writing(run, count, lambda: this_helper.CALLS, this_helper)


@case("[ep]{8}")
def counts_in_a_module_by_setattr(run):
    def count(*_):
        setattr(this_helper, "CALLS", this_helper.CALLS + 1)

    writing(run, count, lambda: this_helper.CALLS)


@case("[ep]{8}")
def sets_a_tensor_of_a_module(run):
    def keep(_, y):
        this_helper.LAST = y

    writing(run, keep, lambda: this_helper.LAST)


@case("[ep]{8}")
def sets_a_tensor_of_its_own_making(run):
    def keep(_, y):
        this_helper.LAST = y * 2

    writing(run, keep, lambda: this_helper.LAST)


@case("[ep]{8}")
def counts_in_torch(run):
    torch.case_count = 0

    def count(*_):
        torch.case_count += 1

    writing(run, count, lambda: torch.case_count)


@case("(eer{6}){2}")
def library_function_by_an_alias(run):
    class Aliased(Net):
        def forward(self, x):
            from torch.nn import functional as F

            activate = F
            return activate.relu(super().forward(x))

    old = functional.relu
    model = net(Aliased)
    for i in range(16):
        if i == 8:
            functional.relu = lambda x: x * 5
        run(model, data(i))
    functional.relu = old
