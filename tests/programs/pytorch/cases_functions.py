"""Functions that are regions: what they get, what they leave in it, and what they return. Those that are called
`region_*` are named in GRAPE_REGIONS, since no program here is long enough for them to be found."""

import collections
import dataclasses
import functools
import itertools
from types import SimpleNamespace
from typing import Any, Callable, Iterator, NamedTuple, Optional

import numpy

import bed
from small import CALLS, F, Run, case, data, ints, torch


def called(run: Run, function: Any, given: Callable[[int], tuple], changes: Optional[dict] = None) -> None:
    """Sees result and arguments of each call; `changes` are made before the calls of these numbers."""
    for i in range(CALLS):
        if changes and i in changes:
            changes[i]()
        arguments = given(i)
        run.see(function(*arguments), arguments, label=f"{function.__name__} {i}")


def work(x: torch.Tensor) -> torch.Tensor:
    """Enough kernels for a replay to pay."""
    y = torch.tanh(x) * 2 + x
    y = F.gelu(y) - x * 0.5
    return torch.sigmoid(y) * y + 0.25


def region_with_history(x: torch.Tensor, seen: list = []) -> torch.Tensor:  # noqa: B006
    seen.append(len(seen))
    if len(seen) > 3:
        seen.clear()
    return work(x) * (len(seen) + 1)


@case("a default that is a list grows in each call, and is emptied in each fourth")
def default_that_grows(run: Run) -> None:
    called(run, region_with_history, lambda i: (data(i),))


def region_with_made_defaults(x: torch.Tensor, made: dict = {}) -> torch.Tensor:  # noqa: B006
    key = tuple(x.shape)
    if key not in made:
        made[key] = torch.arange(x.shape[-1], device=x.device) * 0.125
    return work(x) + made[key]


@case("a default that is a dictionary keeps a tensor for each shape; it is emptied between calls")
def default_that_caches(run: Run) -> None:
    made = region_with_made_defaults.__defaults__[0]
    changes = {5: made.clear, 9: lambda: made.update({(4, 64): torch.ones(64, device=bed.device())})}
    called(run, region_with_made_defaults, lambda i: (data(i, 2 + 2 * (i % 4 != 1), 64),), changes)


def region_fills_list(x: torch.Tensor, out: list) -> int:
    out.append(work(x))
    out.append(out[-1][:2])
    return len(out)


@case("fills the caller's list, which is a new one each time, or the same all the time")
def callers_list_is_filled(run: Run) -> None:
    called(run, region_fills_list, lambda i: (data(i), []))
    kept: list = []
    called(run, region_fills_list, lambda i: (data(i), kept))


def region_fills_dict(x: torch.Tensor, out: dict) -> None:
    out["sum"] = out["sum"] + x if "sum" in out else x
    out["last"] = work(x)
    out.setdefault("first", out["last"])


@case("fills the caller's dictionary: what it gives is kept, replaced, and what it was given")
def callers_dict_is_filled(run: Run) -> None:
    called(run, region_fills_dict, lambda i: (data(i), {}))
    kept: dict = {}
    for i in range(CALLS):
        x = data(i)
        region_fills_dict(x, kept)
        run.see(kept, kept["sum"] is x, kept["first"] is kept["last"])


def region_returns_arguments(x: torch.Tensor, y: torch.Tensor, holder: Any) -> tuple:
    return x, work(x) + y, holder, y


@case("returns what it got: the tensors themselves and the very object")
def arguments_are_returned(run: Run) -> None:
    for i in range(CALLS):
        x, y, holder = data(i), data(i + 1), SimpleNamespace(scale=2.0)
        same = x if i % 3 == 2 else y
        found = region_returns_arguments(x, same, holder)
        run.see(found[0] is x, found[3] is same, found[0] is found[3], found[2] is holder, found)


def region_in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(0.5).add_(y * 2)
    x[0].zero_()
    y[:, ::2] += 1
    return work(x)


@case("writes to its arguments in place, also to parts of them; both are the same tensor, or overlap")
def arguments_are_written_to(run: Run) -> None:
    called(run, region_in_place, lambda i: (data(i), data(i + 1)))

    def overlapping(i: int) -> tuple:
        x = data(i, 8, 64)
        return (x, x) if i % 3 == 0 else (x[:4], x[4:]) if i % 3 == 1 else (x[:4], x[2:6])

    called(run, region_in_place, overlapping)
    x, y = data(0), data(1)
    called(run, region_in_place, lambda i: (x, y))


def region_of_views(x: torch.Tensor) -> list:
    y = work(x)
    return [x[1], x.t(), x.view(-1)[5:9], y[0], y.t(), y]


@case("returns views of its argument and of what it made, which are written to afterwards")
def views_of_arguments_returned(run: Run) -> None:
    for i in range(CALLS):
        x = data(i)
        views = region_of_views(x)
        views[0].add_(1)
        views[2].zero_()
        views[3].mul_(3)
        run.see(x, views, views[0]._is_view(), views[0]._base is x)


def region_with_out(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    y = work(x)
    torch.mul(y, 3, out=out)
    return torch.add(out, x, out=out)


@case("out=: of the right shape, empty at first (it is resized), a part of a larger tensor")
def out_of_functions(run: Run) -> None:
    called(run, region_with_out, lambda i: (data(i), torch.zeros(4, 64, device=bed.device())))
    called(run, region_with_out, lambda i: (data(i), torch.empty(0, device=bed.device())))
    large = torch.zeros(3, 4, 64, device=bed.device())
    for i in range(CALLS):
        run.see(region_with_out(data(i), large[i % 3]), large)


@dataclasses.dataclass
class State:
    total: torch.Tensor
    steps: int = 0
    names: list = dataclasses.field(default_factory=list)


def region_of_state(state: State, x: torch.Tensor) -> State:
    state.total = state.total + work(x)
    state.steps += 1
    if state.steps % 4 == 0:
        state.names.append(f"step {state.steps}")
    return state


@case("a dataclass: attributes are replaced and counted, a text is appended at times")
def dataclass_is_changed(run: Run) -> None:
    state = State(torch.zeros(4, 64, device=bed.device()))
    called(run, region_of_state, lambda i: (state, data(i)))
    called(run, region_of_state, lambda i: (State(data(i), i % 2), data(i)))


class Pair(NamedTuple):
    x: torch.Tensor
    scale: float = 1.0


def region_of_pairs(pair: Pair) -> Pair:
    return pair._replace(x=work(pair.x) * pair.scale)


@case("named tuples, of the class or of one that looks like it")
def named_tuples(run: Run) -> None:
    other = collections.namedtuple("Pair", ["x", "scale"])
    kinds = (Pair, Pair, Pair, Pair, other)
    for i in range(3 * CALLS):
        run.see(region_of_pairs(kinds[i % 5](data(i), 1.0 + i % 2)), type(region_of_pairs(Pair(data(i)))) is Pair)


def region_of_keywords(x: torch.Tensor, *more: torch.Tensor, **options: Any) -> torch.Tensor:
    scale = options.pop("scale", 1.0)
    options["seen"] = True
    for y in more:
        x = x + y
    return work(x) * scale + len(options)


@case("*args and **kwargs: keywords are taken out and put in, and the caller's dictionary stays as it is")
def keywords_are_changed(run: Run) -> None:
    options = {"scale": 2.0, "other": 1}
    for i in range(3 * CALLS):
        more = [data(i + j) for j in range(i % 3)]
        run.see(region_of_keywords(data(i), *more, **options), options)
        if i == 20:
            options["scale"] = 3.0
        if i == 30:
            options = {"other": 1, "scale": 2.0}


def region_with_iterator(x: torch.Tensor, values: Iterator[float]) -> torch.Tensor:
    return work(x) * next(values)


@case("iterators as arguments: a generator, iter() of a list, itertools.count, zip; each call takes one")
def iterators_are_taken_from(run: Run) -> None:
    made = (
        lambda: (float(i) for i in range(100)),
        lambda: iter([float(i) for i in range(100)]),
        lambda: itertools.count(1),
        lambda: map(float, range(100)),
        lambda: itertools.cycle([1.0, 2.0, 3.0]),
    )
    for make in made:
        values = make()
        called(run, lambda x, values=values: region_with_iterator(x, values), lambda i: (data(i),))


def region_with_callback(x: torch.Tensor, callback: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    y = work(x)
    found = callback(y)
    return y if found is None else y + found


@case("callbacks: that count, keep, have another closure each time, are methods of what changes, or partials")
def callbacks(run: Run) -> None:
    counts = {"calls": 0}
    kept: list = []

    def counting(y: torch.Tensor) -> None:
        counts["calls"] += 1

    def keeping(y: torch.Tensor) -> None:
        kept.append(y)
        del kept[:-2]

    class Scaler:
        def __init__(self) -> None:
            self.scale = 1.0

        def apply(self, y: torch.Tensor) -> torch.Tensor:
            return y * self.scale

        def __call__(self, y: torch.Tensor) -> torch.Tensor:
            self.scale += 1
            return y * self.scale

    scaler = Scaler()
    for i in range(2 * CALLS):
        scaler.scale = 1.0 + (i > 8)
        run.see(region_with_callback(data(i), counting), counts)
        run.see(region_with_callback(data(i), keeping), kept)
        run.see(region_with_callback(data(i), lambda y, i=i: y * (i % 2)))
        run.see(region_with_callback(data(i), scaler.apply))
        run.see(region_with_callback(data(i), scaler), scaler.scale)
        run.see(region_with_callback(data(i), functools.partial(torch.mul, i % 2 + 0.5)))


def region_with_generator(x: torch.Tensor, generator: Optional[torch.Generator]) -> torch.Tensor:
    return work(x) + torch.rand(x.shape, generator=generator, device=x.device)


@case("torch.Generator as argument: one, several in turns, seeded again, none; of the device")
def generators_as_arguments(run: Run) -> None:
    made = [torch.Generator(bed.device()).manual_seed(i) for i in range(2)]
    order = (0, 0, 0, 0, 0, None, None, None, None, 1, 1, 0, 1, 0, 1, None, 1, 0, 0, 0)
    for i, at in enumerate(order):
        if i == 15:
            made[1].manual_seed(7)
        run.see(region_with_generator(data(i), None if at is None else made[at]), [g.initial_seed() for g in made])
        run.see(torch.rand(2, generator=made[0], device=bed.device()) if i % 6 == 5 else None)


def region_with_host_generator(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    noise = torch.randn(x.shape, generator=generator, device="cpu").to(x.device)
    return work(x) + noise


@case("a generator of the host's as argument: its numbers are copied to the device")
def host_generators_as_arguments(run: Run) -> None:
    generator = torch.Generator("cpu").manual_seed(3)
    for i in range(CALLS):
        run.see(region_with_host_generator(data(i), generator), generator.get_state())


def region_with_host_tensors(x: torch.Tensor, scale: torch.Tensor, log: torch.Tensor) -> torch.Tensor:
    log[int(scale) % 4] += 1
    return work(x) * scale


@case("tensors on the CPU as arguments: one is read as a number, one is written to")
def host_tensors_as_arguments(run: Run) -> None:
    log = torch.zeros(4, device="cpu")
    called(run, region_with_host_tensors, lambda i: (data(i), torch.tensor(1.0 + i % 2, device="cpu"), log))


def region_with_array(x: torch.Tensor, array: Any) -> torch.Tensor:
    array[0] += 1
    return work(x) * float(array.sum())


@case("a NumPy array as argument, read and written to")
def arrays_as_arguments(run: Run) -> None:
    array = numpy.zeros(3)
    called(run, region_with_array, lambda i: (data(i), array))


def region_tags(x: torch.Tensor) -> torch.Tensor:
    x.tag = getattr(x, "tag", 0) + 1
    y = work(x)
    y.made_from = x
    y.tag = x.tag
    return y


@case("attributes of tensors: of the argument and of the result, which refers to the argument")
def attributes_of_tensors(run: Run) -> None:
    x = data(0)
    for i in range(CALLS):
        y = region_tags(x if i % 2 else data(i))
        run.see(x.tag if hasattr(x, "tag") else None, y.tag, y.made_from is x, y)


def region_turns_list(items: list) -> torch.Tensor:
    items.reverse()
    last = items.pop()
    items.insert(0, last * 2)
    return work(items[1])


@case("a list of tensors is turned, shortened and filled")
def list_of_tensors_is_turned(run: Run) -> None:
    items = [data(i) for i in range(3)]
    called(run, region_turns_list, lambda i: (items,))
    called(run, region_turns_list, lambda i: ([data(i), data(i + 1), data(i)],))


def region_of_window(x: torch.Tensor, window: Any) -> torch.Tensor:
    window.append(work(x))
    return torch.stack(list(window)).mean(0)


@case("a deque of at most three tensors: the oldest is let go of")
def window_of_tensors(run: Run) -> None:
    window: Any = collections.deque(maxlen=3)
    called(run, region_of_window, lambda i: (data(i), window))


def region_that_recurs(x: torch.Tensor, depth: int) -> torch.Tensor:
    if depth == 0:
        return work(x)
    return region_that_recurs(work(x), depth - 1) + x


@case("calls itself, to another depth each time, and is called from its own callback")
def recursive_functions(run: Run) -> None:
    called(run, region_that_recurs, lambda i: (data(i), i % 3))
    called(run, region_with_callback, lambda i: (data(i), lambda y: region_with_callback(y * 0.5, lambda z: None)))


def region_of_last(x: torch.Tensor, last: Any) -> tuple:
    y = work(x)
    if last is not None:
        y = y + last
    return y, y is last, last is x


@case("its result is its next argument, at times the same as another one, at times none")
def result_is_the_next_argument(run: Run) -> None:
    last = None
    for i in range(2 * CALLS):
        x = last if i % 5 == 4 else data(i)
        last, *more = region_of_last(x, None if i % 7 == 6 else last)
        run.see(last, more)


MISSING = object()


def region_with_marks(x: torch.Tensor, value: Any = MISSING, kind: Any = None) -> torch.Tensor:
    y = work(x)
    if value is MISSING:
        return y
    return y * 2 if kind is value else y - 1


@case("a mark that a default is; classes and functions as arguments, compared by identity")
def marks_as_defaults(run: Run) -> None:
    def make() -> type:
        return type("Kind", (), {})

    one, other = make(), make()
    order = [(), (None,), (one, one), (one, other), (MISSING,), (work, work), (other, other), (object(), None)]
    for i in range(4 * len(order)):
        run.see(region_with_marks(data(i), *order[i // 4]))
    for i in range(2 * CALLS):
        run.see(region_with_marks(data(i), *order[i % len(order)]))


def region_keyed(cache: dict, x: torch.Tensor) -> torch.Tensor:
    if x not in cache:
        cache[x] = work(x)
    return cache[x] + 1


@case("tensors as keys of the caller's dictionary: met again, new, and equal to others")
def tensors_as_keys(run: Run) -> None:
    kept = [data(0), data(0), data(1)]
    cache: dict = {}
    for i in range(2 * CALLS):
        run.see(region_keyed(cache, kept[i % 3]), len(cache))
    for i in range(CALLS):
        cache = {}
        run.see(region_keyed(cache, kept[i % 3]), len(cache), list(cache.values()))


def region_of_text(x: torch.Tensor, name: str, flags: frozenset) -> tuple:
    y = work(x)
    if "half" in flags:
        y = y * 0.5
    return y, f"{name}:{tuple(y.shape)}:{len(flags)}", name.upper()


@case("texts, bytes, sets and numbers as arguments: equal ones that are other objects")
def values_as_arguments(run: Run) -> None:
    for i in range(2 * CALLS):
        name, flags = "".join(["na", "me"]) + str(i % 2), frozenset(["half"] if i % 4 < 2 else ["no"])
        run.see(region_of_text(data(i), name, flags))


def region_with_dtype(x: torch.Tensor, dtype: torch.dtype, index: Any) -> torch.Tensor:
    return work(x.to(dtype))[index]


@case("types, slices, indices as arguments: numbers, masks, tensors of indices")
def indices_as_arguments(run: Run) -> None:
    rows = ints(1, 4, 3)
    indices = [slice(1, 3), (slice(None), 5), [0, 2], Ellipsis, None, 1, rows, rows > 1]
    for i in range(6 * len(indices)):
        index = indices[i // 6]
        x = data(i, 3, 64) if torch.is_tensor(index) and index.dtype == torch.bool else data(i)
        run.see(region_with_dtype(x, (torch.float32, torch.float64)[i % 2], index))
