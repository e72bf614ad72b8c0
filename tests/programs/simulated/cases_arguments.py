"""Arguments of other shapes, values and kinds; and what a call does to them."""
import collections
import dataclasses

import torch
from bed import case
from tiny import Net, data, net


def calling(run, arguments, calls=12, kind=Net):
    """`arguments(i)`: those of call i, as a tuple."""
    model = net(kind)
    for i in range(calls):
        run(model, *arguments(i))


# No more than a few thousand are remembered, and those that came once make room for those that come now.
@case("e{8303}r{3}")
def more_arguments_than_are_remembered(run):
    calling(run, lambda i: (data(1), None) if i >= 8300 else (data(1), float(i)), calls=8306, kind=Times)


class Times(Net):
    def forward(self, x, factor):
        return super().forward(x) * (2.0 if factor is None else factor)


class Any(Net):
    """Of any shape and type; several arguments."""

    def forward(self, x, other=None, **options):
        y = torch.relu(x * 2 + 1) if other is None else x + other * 2
        return y * options.get("scale", 1.0)


@case("eer{4}e{2}r{4}")
def other_strides(run):
    square = lambda i: torch.full((8, 8), float(i), device="cuda") + torch.ones(8, 1, device="cuda")
    calling(run, lambda i: (square(i) if i < 6 else square(i).t(),))


@case("eer{4}e{2}r{4}")
def other_type(run):
    calling(run, lambda i: (data(i) if i < 6 else data(i).double(),), kind=Any)


@case("eer{4}e{2}r{4}")
def other_alignment(run):
    def argument(i):
        x = torch.arange(32, device="cuda") * float(i + 1)
        return (x[:24] if i < 6 else x[1:25],)

    calling(run, argument, kind=Any)


@case("eer{4}e{2}r{4}")
def the_same_twice(run):
    def arguments(i):
        x, y = data(i), data(i + 50)
        return (x, y) if i < 6 else (x, x)

    calling(run, arguments, kind=Any)


@case("eer{4}e{2}r{4}")
def overlapping_views(run):
    class Writing(Net):
        def forward(self, x, y):
            x.add_(1)
            return x * 2 + y

    def arguments(i):
        base = torch.arange(48, device="cuda").view(6, 8) * float(i + 1)
        return (base[0:3], base[3:6]) if i < 6 else (base[0:3], base[1:4])

    calling(run, arguments, kind=Writing)


@case("e{4}rer{6}")
def no_elements(run):
    calling(run, lambda i: (data(i, rows=0 if i % 2 else 3),), kind=Any)


@case("eer{4}e{2}r{4}")
def other_number(run):
    class Scaled(Net):
        def forward(self, x, scale):
            return super().forward(x) * scale

    calling(run, lambda i: (data(i), 2.0 if i < 6 else 3.0), kind=Scaled)


@case("e{4,8}p{0,4}")
def a_number_that_never_repeats(run):
    class Scaled(Net):
        def forward(self, x, scale):
            return super().forward(x) * scale

    calling(run, lambda i: (data(i), float(i)), kind=Scaled, calls=8)


# Equal numbers of several types.
@case("e{6}re{2}r{9}")
def one_true_and_one_point_zero(run):
    class Typed(Net):
        def forward(self, x, scale):
            return super().forward(x) * (2 if scale is True else 3 if isinstance(scale, int) else 4)

    calling(run, lambda i: (data(i), (1, True, 1.0)[i % 3]), kind=Typed, calls=18)


@case("e{4}rer{6}")
def zero_and_minus_zero(run):
    class Signed(Net):
        def forward(self, x, scale):
            return super().forward(x) * (2 if str(scale) == "-0.0" else 3)

    calling(run, lambda i: (data(i), (0.0, -0.0)[i % 2]), kind=Signed)


@case("e{6}re{2}r{3}")
def positional_and_by_keyword(run):
    model = net(Any)
    for i in range(12):
        x = data(i)
        if i % 3 == 0:
            run(model, x, None)
        elif i % 3 == 1:
            run(model, x, other=None)
        else:
            run(model, x=x, scale=2.0)


@case("e{4}rer{6}")
def order_of_a_dictionary(run):
    class Ordered(Net):
        def forward(self, parts):
            total = None
            for scale, part in enumerate(parts.values()):
                total = part if total is None else total * (scale + 1) + part
            return total

    def argument(i):
        x, y = data(1), data(2)
        return ({"x": x, "y": y} if i % 2 else {"y": y, "x": x},)

    calling(run, argument, kind=Ordered)


@case("eer{4}e{2}r{4}")
def small_tensor_of_the_host(run):
    class Hosted(Net):
        def forward(self, x, scale):
            return super().forward(x) * scale.item()

    calling(run, lambda i: (data(i), torch.tensor([2.0 if i < 6 else 3.0])), kind=Hosted)


@case("[ep]{8}")
def changes_a_tensor_of_the_host(run):
    class Hosted(Net):
        def forward(self, x, count):
            count.add_(1)
            return super().forward(x)

    model, count = net(Hosted), torch.zeros(1)
    for i in range(8):
        run(model, data(i), count)
        run.see(count)


@case("[ep]{8}")
def subclass_of_tensor(run):
    class Special(torch.Tensor):
        def __mul__(self, other):
            return torch.Tensor.__mul__(self, other * 3)

    calling(run, lambda i: (torch.Tensor._make_subclass(Special, data(i), False),), kind=Any, calls=8)


@case("[ep]{8}")
def an_opaque_object(run):
    class Consuming(Net):
        def forward(self, x, numbers):
            return super().forward(x) * next(numbers)

    numbers = iter([float(i) for i in range(20)])
    calling(run, lambda i: (data(i), numbers), kind=Consuming, calls=8)


@case("eer{8}")
def input_changed_in_place(run):
    class Mutating(Net):
        def forward(self, x):
            x.add_(1)
            return super().forward(x)

    model, x = net(Mutating), data()
    for _ in range(10):
        run(model, x)
        run.see(x)


@dataclasses.dataclass
class Cache:
    keys: torch.Tensor = None
    seen: int = 0
    layers: list = dataclasses.field(default_factory=list)


class Caching(Net):
    """A cache of a fixed number of rows, whose tensor is replaced in each call."""

    def forward(self, x, cache):
        cache.keys = torch.cat([cache.keys[1:], self.first(x)[:1]])
        return self.second(torch.relu(cache.keys))


@case("eer{8}")
def cache_replaced(run):
    model, cache = net(Caching), Cache(torch.zeros(4, 16, device="cuda"))
    for i in range(10):
        run(model, data(i), cache)
        run.see(cache.keys, cache.seen)


# The old tensor is also somebody else's.
@case("eer{8}")
def cache_replaced_and_kept(run):
    model, cache, kept = net(Caching), Cache(torch.zeros(4, 16, device="cuda")), []
    for i in range(10):
        kept.append(cache.keys)
        run(model, data(i), cache)
    run.see(kept)


@case("eer{8}")
def cache_in_a_dictionary(run):
    class Dictionary(Net):
        def forward(self, x, cache):
            cache["keys"] = torch.cat([cache["keys"][1:], self.first(x)[:1]])
            cache["list"][0] = cache["keys"] * 2
            return self.second(torch.relu(cache["list"][0]))

    model = net(Dictionary)
    cache = {"keys": torch.zeros(4, 16, device="cuda"), "list": [None]}
    cache["list"][0] = cache["keys"] + 1
    for i in range(10):
        run(model, data(i), cache)
        run.see(cache)


class PuttingBack(Net):
    """Takes an entry out and puts one in again, under a key that it makes anew."""

    def forward(self, x, cache, number):
        y = super().forward(x)
        for key in (f"layer_{number}", (2000 + number, "k")):
            old = cache.pop(key)
            cache[key] = y + old
        return y


@case("(eer{7}){2}")
def entry_put_back_under_an_equal_key(run):
    for kind in (dict, collections.OrderedDict):
        model, number = net(PuttingBack), 7
        for i in range(9):
            cache = kind([("first", 0.5), (f"layer_{number}", 2.0), ("middle", 1.0), ((2000 + number, "k"), 3.0)])
            run(model, data(i), cache, number)
            run.see(cache, list(cache))


@case("e{4}[ep]{5}", reason="argument dict: the call changed a dictionary with a key that is a NaN, or has one in it")
def entry_of_a_nan(run):
    class OfNan(Net):
        def forward(self, x, table):
            key = next(key for key in table if key != key)
            return super().forward(x) * table.pop(key)

    model = net(OfNan)
    for i in range(9):
        table = {"first": 0.5, float("nan"): 2.0}
        run(model, data(i), table)
        run.see(table)


@case("eer{8}")
def cache_changed_in_place(run):
    class InPlace(Net):
        def forward(self, x, cache):
            cache.keys[0:3].copy_(self.first(x))
            return self.second(cache.keys)

    model, cache = net(InPlace), Cache(torch.zeros(4, 16, device="cuda"))
    for i in range(10):
        run(model, data(i), cache)
        run.see(cache.keys)


class Growing(Net):
    def forward(self, x, cache):
        y = self.first(x)
        cache.keys = y if cache.keys is None else torch.cat([cache.keys, y])
        return self.second(torch.relu(cache.keys))


# Lengths come again with each sequence: the second time they are observed, then proven, then replayed.
@case("e{16}re{7}r{8}")
def cache_grown(run):
    model = net(Growing)
    for sequence in range(4):
        cache = Cache()
        for i in range(8):
            run(model, data(sequence * 8 + i, rows=1), cache)
        run.see(cache.keys)


@case("[ep]{8}")
def cache_that_counts(run):
    class Counting(Caching):
        def forward(self, x, cache):
            cache.seen += 1
            return super().forward(x, cache)

    model, cache = net(Counting), Cache(torch.zeros(4, 16, device="cuda"))
    for i in range(8):
        run(model, data(i), cache)
        run.see(cache.keys, cache.seen)


@case("[ep]+")
def list_that_grows(run):
    class Appending(Net):
        def forward(self, x, results):
            results.append(super().forward(x))
            return results[-1]

    model, results = net(Appending), []
    for i in range(8):
        run(model, data(i), results)
    run.see(results)


@case("[epr]{12}")
def deque_that_rolls(run):
    class Rolling(Net):
        def forward(self, x, window):
            window.append(self.first(x))
            return self.second(window[0])

    model, window = net(Rolling), collections.deque(maxlen=3)
    for i in range(12):
        run(model, data(i), window)
    run.see(list(window))


@case("[ep]+")
def object_with_a_property(run):
    class Counted:
        def __init__(self):
            self.reads = 0

        @property
        def scale(self):
            self.reads += 1
            return 2.0

    class Reading(Net):
        def forward(self, x, counted):
            return super().forward(x) * counted.scale

    model, counted = net(Reading), Counted()
    for i in range(8):
        run(model, data(i), counted)
    run.see(counted.reads)


WRITES = "wrote to a tensor on the CPU"


@case("e{4,12}p{0,8}", reason=WRITES)
def tensor_on_the_cpu_is_written(run):
    class Counting(Net):
        def forward(self, x, seen):
            seen.add_(1)
            return super().forward(x)

    model = net(Counting)
    for i in range(12):
        seen = torch.zeros(3)
        run(model, data(i), seen)
        run.see(seen)


@case("e{4,12}p{0,8}", reason=WRITES)
def tensor_on_the_cpu_of_a_module_is_written(run):
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = torch.zeros(2)

    class Counting(Net):
        def forward(self, x, counter):
            counter.seen.add_(1)
            return super().forward(x)

    model = net(Counting)
    for i in range(12):
        counter = Counter()
        run(model, data(i), counter)
        run.see(counter.seen)


def overlapping(run, first, rows):
    """Two storages have these rows in common: in the first eight calls, or in those behind them."""

    class Writing(Net):
        def forward(self, y, x):
            y.mul_(0.5)
            x.add_(1)
            return super().forward(x)

    model = net(Writing)
    for i in range(16):
        x, other = data(i, 64), data(i + 50, 64)
        together = (i < 8) == first
        y = torch.from_dlpack((x if together else other)[rows])
        run(model, y, x)
        run.see(x, y)


@case("[ep]{8}eer{6}", reason="a tensor whose memory is another one's as well, in part")
def storages_that_begin_together(run):
    overlapping(run, True, slice(0, 32))


OVERLAP = "arguments: the memory of one tensor's storage is in part another one's"


@case("[ep]{8}eer{6}", reason=OVERLAP)
def storages_that_overlap(run):
    overlapping(run, True, slice(32, 64))


@case("eer{6}[ep]{8}", reason=OVERLAP)
def storages_that_come_to_overlap(run):
    overlapping(run, False, slice(32, 64))
