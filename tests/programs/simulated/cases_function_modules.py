"""Functions that GRAPE_REGIONS names and whose first argument is a module: methods of modules, mostly."""
import gc
import weakref

from bed import case
from tiny import Net, data, net


class Decoder(Net):
    def __init__(self):
        super().__init__()
        self.scale, self.kept = 1.0, None

    def region_of_a_module(self, x):
        return self(x) * self.scale

    def region_that_keeps(self, x):
        self.kept = self(x) if self.kept is None else self.kept + self(x)
        return self.kept * 2

    def region_that_gives_itself(self, x):
        return self(x), self


def region_with_a_model(model, x):
    return model(x) * model.scale


def parameter_replaced(model):
    model.first.weight.data = model.first.weight.data * 2


# What hangs on a module is guarded, not walked at each call: with weights elsewhere it is proven anew.
@case("eer{3}eer{3}eer{3}")
def state_of_a_methods_module_changes(run):
    model = net(Decoder)
    kept = model.first.weight.data
    for i in range(15):
        if i == 5:
            parameter_replaced(model)
        if i == 10:
            model.scale = 2.0
        run(model.region_of_a_module, data(i))
    run.see(kept)


@case("eer{3}eer{3}")
def function_of_a_model(run):
    model = net(Decoder)
    for i in range(10):
        if i == 5:
            model.scale = 3.0
        run(region_with_a_model, model, data(i))


# A region for each of them.
@case("e{4}r{8}")
def method_of_two_modules(run):
    models = [net(Decoder), net(Decoder)]
    models[1].scale = 4.0
    for i in range(12):
        run(models[i % 2].region_of_a_module, data(i))


@case("eer{3}eer{3}")
def method_of_a_module_is_replaced(run):
    model = net(Decoder)
    before = Decoder.region_of_a_module.__code__
    for i in range(10):
        if i == 5:
            Decoder.region_of_a_module.__code__ = (lambda self, x: self(x) * 5.0).__code__
        run(model.region_of_a_module, data(i))
    Decoder.region_of_a_module.__code__ = before


# Then the module is an argument like others: what it gets is an effect of the call.
@case("[ep]{3,6}r{6,9}")
def method_that_keeps_in_its_module(run):
    model = net(Decoder)
    for i in range(12):
        run(model.region_that_keeps, data(i))
        run.see(model.kept)


@case("eer{4}")
def method_gives_its_module(run):
    model = net(Decoder)
    for i in range(6):
        run.see(run(model.region_that_gives_itself, data(i))[1] is model)


@case("(?:eer{3}){3}")
def modules_of_a_method_go(run):
    for i in range(3):
        model = net(Decoder)
        reference = weakref.ref(model)
        for j in range(5):
            run(model.region_of_a_module, data(j))
        del model
        gc.collect()
        run.see(reference() is None)
