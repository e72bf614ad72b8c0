"""What a call returns, raises, and does to streams, threads and modes."""
import collections
import dataclasses
import gc
import os
import threading
import weakref

import torch
from bed import case
from tiny import Net, data, net
from torch import nn


def returning(run, function, calls=8, after=None):
    """A model that returns function(model, x, y); `after(x, result)` looks at it."""

    class Returning(Net):
        def forward(self, x):
            return function(self, x, super().forward(x))

    model = net(Returning)
    for i in range(calls):
        x = data(i)
        result = run(model, x)
        if after is not None:
            run.see(after(x, result))
    return model


@case("eer{6}")
def returns_its_input(run):
    returning(run, lambda model, x, y: x.add_(y), after=lambda x, result: result is x)


@case("eer{6}")
def returns_a_view_of_its_input(run):
    def after(x, result):
        result[0].zero_()
        return [x, result[0].data_ptr() == x[1:].data_ptr(), result[0].shape]

    returning(run, lambda model, x, y: (x[1:], y), after=after)


@case("eer{6}")
def returns_views_of_one(run):
    def after(_, result):
        result["a"].mul_(2)
        return [result, result["a"].data_ptr() == result["y"].data_ptr()]

    returning(run, lambda model, x, y: {"a": y[:2], "b": y[1:], "t": y.t(), "y": y}, after=after)


@case("eer{6}")
def returns_one_twice(run):
    returning(run, lambda model, x, y: (y, [y, y]), after=lambda x, r: [r[0] is r[1][0], r[1][1] is r[0]])


@case("eer{6}")
def returns_a_part_of_what_it_made(run):
    def after(_, result):
        return [result.storage_offset(), result.untyped_storage().nbytes()]

    returning(run, lambda model, x, y: y[1], after=after)


@case("eer{6}")
def returns_its_weight(run):
    def after(_, result):
        return [result[0].requires_grad, type(result[0]).__name__]

    model = returning(run, lambda model, x, y: (model.first.weight, model.first.weight[0], y), after=after)
    run.see(model.first.weight)


@case("eer{6}")
def returns_nothing(run):
    def function(model, x, y):
        x.copy_(y)

    returning(run, function, after=lambda x, _: x)


CONSTANT = {"name": "constant"}


TERMINAL_SIZE, TIMES = os.terminal_size, os.times_result  # made as torch.return_types.max


@case("eer{6}")
def returns_what_c_names(run):
    def function(model, x, y):
        return TERMINAL_SIZE((y, x)), {"deep": [TERMINAL_SIZE((y[1:], None)), TIMES(range(5))]}

    def after(x, result):
        size, deep = result[0], result[1]["deep"]
        return [type(size).__qualname__, size.lines is x, size.columns, type(deep[0]).__name__, deep[0].columns, deep[1]]

    returning(run, function, after=after)


@case("eer{6}eer{6}")
def takes_and_keeps_what_c_names(run):
    class Taking(Net):
        def forward(self, size, kept):
            y = super().forward(size.columns)
            kept.append(TERMINAL_SIZE((size, y)))
            return size

    model, kept = net(Taking), []
    for i in range(8):
        size = TERMINAL_SIZE((data(i), 1))
        result = run(model, size, kept[:])
        run.see(result is size)
    for i in range(8):
        result = run(model, TERMINAL_SIZE((data(i), i // 4)), kept)
        run.see(kept.pop())


@case("[er]{4,8}p{0,4}")
def returns_a_global(run):
    returning(run, lambda model, x, y: (y, CONSTANT), after=lambda x, result: result[1] is CONSTANT)


@case("[er]{4,8}p{0,4}")
def returns_an_object_of_the_module(run):
    class Informed(Net):
        def __init__(self):
            super().__init__()
            self.info = {"name": "info", "list": [1, 2]}

        def forward(self, x):
            return super().forward(x), self.info, self.info["list"]

    model = net(Informed)
    for i in range(8):
        result = run(model, data(i))
        run.see(result[1] is model.info, result[2] is model.info["list"])


@case("[er]{4,8}p{0,4}")
def returns_a_tensor_with_an_attribute(run):
    def function(model, x, y):
        y.tag = "made here"
        return y

    returning(run, function, after=lambda x, y: y.tag)


@case("[er]{4,8}p{0,4}")
def sets_an_attribute_of_its_input(run):
    def function(model, x, y):
        x.tag = "seen"
        return y

    returning(run, function, after=lambda x, _: x.tag)


@case("[ep]{8}")
def counts_in_an_attribute_of_its_weight(run):
    def function(model, x, y):
        model.first.weight.uses = getattr(model.first.weight, "uses", 0) + 1
        return y

    model = returning(run, function)
    run.see(model.first.weight.uses)


@case("[er]{4,8}p{0,4}")
def makes_a_result_that_wants_gradients(run):
    def function(model, x, y):
        y.requires_grad = True
        return y

    returning(run, function)


@case("eer{8}")
def feeds_its_result_back(run):
    model, x = net(), data()
    for _ in range(10):
        x = run(model, x)


@dataclasses.dataclass
class Output:
    y: torch.Tensor
    parts: tuple = ()
    name: str = "output"
    extra: dict = None


class ModelOutput(collections.OrderedDict):
    """As the transformers library's: entries that are attributes as well."""

    def __getattr__(self, name):
        return self[name]


Named = collections.namedtuple("Named", "y, name")


@case("eer{6}")
def returns_a_dataclass(run):
    returning(run, lambda model, x, y: Output(y, (y * 2, None), extra={"x": x}))


@case("eer{6}")
def returns_a_named_tuple(run):
    returning(run, lambda model, x, y: Named(y, "name"), after=lambda x, r: [type(r).__name__, r.name, r.y])


@case("eer{6}")
def returns_an_ordered_dict(run):
    returning(run, lambda model, x, y: ModelOutput(y=y, z=y * 2), after=lambda x, r: [type(r).__name__, r.z])


@case("[ep]{8}")
def returns_a_generator(run):
    class Generating(Net):
        def forward(self, x):
            return (self.first(x) * i for i in range(2))

    model = net(Generating)
    for i in range(8):
        run.see(list(run_lazily(run, model, data(i))))


def run_lazily(run, model, x):
    before = torch._C._operators_run()
    result = model(x)
    run.calls.append(torch._C._operators_run() - before + 1)
    return result


@case("[ep]{8}")
def returns_a_counter(run):
    class Counting(Net):
        def forward(self, x):
            self.count += 1
            return super().forward(x), self.count

    model = net(Counting)
    for i in range(8):
        run(model, data(i))


@case("eer{6}")
def results_are_watched(run):
    ended = []

    def after(_, result):
        reference = weakref.ref(result, lambda _: ended.append(1))
        return reference() is result

    returning(run, lambda model, x, y: y, after=after)
    gc.collect()
    run.see(len(ended))


@case("eerxr{4}xr{4}xr{2}")
def raises_in_some_calls(run):
    class Failing(Net):
        def forward(self, x, fail):
            y = super().forward(x)
            if fail:
                raise ValueError("failed")
            return y

    model = net(Failing)
    for i in range(16):
        run(model, data(i), i % 5 == 3)


@case("x{4}e{2}r{6}")
def raises_at_first(run):
    class Failing(Net):
        def forward(self, x):
            y = super().forward(x)
            if self.flag:
                raise ValueError("failed")
            return y

    model = net(Failing)
    model.flag = True
    for i in range(12):
        model.flag = i < 4
        run(model, data(i))


@case("eer{4}x{2}r{4}")
def wrong_arguments(run):
    model = net()
    for i in range(12):
        if i == 6:
            run(model)
        elif i == 7:
            run(model, torch.ones(3, 5, device="cuda"))
        else:
            run(model, data(i))


@case("e{4}r{4}")
def catches_an_exception(run):
    class Catching(Net):
        def forward(self, x):
            try:
                x[100]
            except IndexError as error:
                self.error = str(error)
            return super().forward(x)

    model = net(Catching)
    model.error = ""
    for i in range(8):
        model.error = ""
        run(model, data(i))


class InStreams(Net):
    """Half of the work on a stream of its own."""

    side = None
    joins = True

    def forward(self, x):
        current = torch.cuda.current_stream()
        side = torch.cuda.Stream(self.side)
        side.wait_stream(current)
        y = self.first(x)
        with torch.cuda.stream(side):
            torch.delay(200)
            z = self.first(x * 2)
        if self.joins:
            current.wait_stream(side)
        return self.second(torch.relu(y)), z * 2 if self.joins else z


@case("e{2,3}r{5,6}")
def forks_and_joins(run):
    model = net(InStreams)
    model.side = torch.cuda.Stream().cuda_stream
    for i in range(8):
        run(model, data(i))


@case("[ep]{8}", refusals=("leaves_work",))
def forks_and_does_not_join(run):
    model = net(InStreams)
    model.side, model.joins = torch.cuda.Stream().cuda_stream, False
    side = torch.cuda.Stream(model.side)
    for i in range(8):
        before = torch._C._operators_run()
        result = model(data(i))
        run.calls.append(torch._C._operators_run() - before)
        torch.cuda.current_stream().wait_stream(side)
        run.see(result)


@case("eer{6}")
def on_another_stream(run):
    model, side = net(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for i in range(8):
            run(model, data(i))


# Each stream is a signature of its own.
@case("e{4}rer{10}")
def on_two_streams(run):
    model, side = net(), torch.cuda.Stream()
    for i in range(16):
        x = data(i)
        if i % 2:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                run(model, x)
            torch.cuda.current_stream().wait_stream(side)
        else:
            run(model, x)


@case("[ep]{8}")
def changes_the_stream(run):
    class Changing(Net):
        def forward(self, x):
            torch._C._cuda_setStream(self.side)
            return super().forward(x)

    model, side = net(Changing), torch.cuda.Stream()
    model.side = side.cuda_stream
    for i in range(8):
        x = data(i)
        side.wait_stream(torch.cuda.Stream(0))
        run(model, x)
        torch._C._cuda_setStream(0)


def in_threads(run, models, calls):
    """Each thread calls its model; results are seen thread by thread."""
    results = [[] for _ in models]
    barrier = threading.Barrier(len(models))

    def work(number):
        with torch.no_grad():
            barrier.wait()
            for i in range(calls):
                result = models[number](data(100 * number + i))
                torch.delay(50)
                results[number].append(result.tobytes())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.see(results)


@case("eer{4}")
def one_model_in_two_threads(run):
    model = net()
    for i in range(6):
        run(model, data(i))
    in_threads(run, [model, model], 60)


@case("")
def one_new_model_in_three_threads(run):
    model = net()
    in_threads(run, [model, model, model], 40)


@case("")
def two_models_in_two_threads(run):
    in_threads(run, [net(), net()], 40)


@case("eer{4}e{2}r{2}")
def model_called_in_another_thread(run):
    model = net()
    for i in range(6):
        run(model, data(i))

    def work():
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            for i in range(4):
                run(model, data(i))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@case("[ep]{8}")
def weight_changed_by_another_thread(run):
    """While the model waits in its forward, somebody else changes what it computes with."""

    class Waiting(Net):
        def forward(self, x):
            y = self.first(x)
            self.ask.set()
            self.go.wait(10)
            self.go.clear()
            return self.second(y)

    model = net(Waiting)
    object.__setattr__(model, "ask", threading.Event())
    object.__setattr__(model, "go", threading.Event())

    def change():
        for i in range(8):
            model.ask.wait(10)
            model.ask.clear()
            model.second.bias.data = torch.full((8,), float(i), device="cuda")
            model.go.set()

    thread = threading.Thread(target=change)
    thread.start()
    for i in range(8):
        run(model, data(i))
    thread.join()


@case("eer{6}")
def sequence_of_models(run):
    models = nn.Sequential(net(), net(), nn.ReLU())
    for i in range(8):
        run(models, data(i))
