"""Programs whose calls work on one device and can reach tensors of another one: kernels cannot. Or
that move their tensors from device to device, as models do that are spread over several."""

import torch
from cases_devices import CALLS, Net, case, data, made, see
from torch import nn

DEVICES = ("device", "stay on one GPU")


@torch.no_grad()
def results(model, *arguments, times=CALLS):
    """`arguments`: functions that make them anew."""
    for _ in range(times):
        y = model(*[make() for make in arguments])
        several = y if isinstance(y, tuple) else (y,)
        see(*several, *[(part.device.index, tuple(part.shape)) for part in several])


def there():
    return data("cuda:0")


class Ignoring(Net):
    def forward(self, x, other):
        return super().forward(x)


@case(least=0, reason=DEVICES)
def argument_of_another_one():
    results(made("ArgumentOfAnotherOne", Ignoring), data, there)


@case(least=0, reason=DEVICES)
def argument_of_the_current_one():
    results(made("ArgumentOfTheCurrentOne", Ignoring, device="cuda:0"), there, data)


@case(least=0, reason=DEVICES)
def the_same_argument_of_another_one():
    other = there()
    results(made("TheSameArgumentOfAnotherOne", Ignoring), data, lambda: other)


class Holding(Net):
    def __init__(self):
        super().__init__()
        self.held = [torch.ones(5)]

    def _apply(self, function, *more):
        self.held = [torch.ones(5, device="cuda:0")]
        return super()._apply(function, *more)


@case(least=0, reason=DEVICES)
def attribute_of_the_other_one():
    results(made("AttributeOfTheOtherOne", Holding), data)


GLOBAL = {}


class Naming(Net):
    def forward(self, x):
        return super().forward(x) * (2 if GLOBAL["other"].dim() == 2 else 3)


@case(least=0, reason=DEVICES, refusals=("tensors_on_other_device",))
def global_of_the_other_one():
    GLOBAL["other"] = there()
    results(made("GlobalOfTheOtherOne", Naming), data)
    GLOBAL.clear()


class WithEmpty(Net):
    def forward(self, x):
        return super().forward(x), torch.empty(0, 3, device="cuda:0")


@case(least=0)
def empty_result_of_the_other_one():
    results(made("EmptyResultOfTheOtherOne", WithEmpty), data)


class WithUnwritten(Net):
    def forward(self, x):
        return super().forward(x), torch.empty(4, 3, device="cuda:0")


@case(least=0)
def unwritten_result_of_the_other_one():
    model = made("UnwrittenResultOfTheOtherOne", WithUnwritten)
    with torch.no_grad():
        for _ in range(CALLS):
            y, other = model(data())
            see(y, other.device.index, other.shape, other.fill_(1) + 1)


class WithView(Net):
    def forward(self, x, other):
        return super().forward(x), other[1]


@case(least=0, reason=DEVICES)
def view_of_the_other_ones():
    results(made("ViewOfTheOtherOnes", WithView), data, there)


class MovingResult(Net):
    def forward(self, x):
        return super().forward(x).to("cuda:0")


@case(least=0, reason=DEVICES)
def result_moved():
    results(made("ResultMoved", MovingResult), data)


class MovingArgument(Net):
    def forward(self, x):
        return super().forward(x.to("cuda:1"))


@case(least=0, reason=DEVICES)
def argument_moved():
    results(made("ArgumentMoved", MovingArgument), there)


class Copying(Net):
    def forward(self, x, to):
        to.copy_(super().forward(x))
        return to


@case(least=0)
def argument_of_the_other_one_written():
    results(made("ArgumentOfTheOtherOneWritten", Copying), data, lambda: torch.zeros(4, 8, device="cuda:0"))


class Spread(nn.Module):
    """Its parts lie on the devices in turn, and hooks move what they get, as device_map="auto" does it."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(made(f"Part{i}", Part, device=f"cuda:{i % 2}") for i in range(4))
        for i, part in enumerate(self.parts):
            part.register_forward_pre_hook(lambda _, arguments, i=i: tuple(a.to(f"cuda:{i % 2}") for a in arguments))

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return x + self.inner(x)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


@case(least=0)
def spread_over_both():
    results(Spread(), there, times=3 * CALLS)


class Parallel(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = made("OneBeside", device="cuda:0"), made("TwoBeside")

    def forward(self, x):
        one, two = self.one(x), self.two(x.to("cuda:1"))
        return one + two.to("cuda:0")


@case(least=0)
def in_parallel():
    results(Parallel(), there, times=3 * CALLS)


class Asking(Net):
    """Enough is reached for many ranges, of which the last lies elsewhere."""

    def forward(self, many):
        return super().forward(many[0])


@case(least=0, reason=DEVICES)
def one_of_many():
    many = [data() for _ in range(20)] + [there()]
    results(made("OneOfMany", Asking), lambda: many)
