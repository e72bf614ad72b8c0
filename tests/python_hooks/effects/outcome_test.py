"""Calls of every shape that can be repeated (outcome.py says how they are checked)."""
import collections
import gc
import os
import types

from outcome import Check, main, torch
from outcome_shapes import (MODULE, Cache, Color, Frozen, FrozenSlotted, Holder, Loud, LoudDict, LoudList, MoreSlotted,
                            NamedTuple, OutputLike, Pair, Plain, Slotted, aligned, helper, named, x)

CASES = {}


def case(make=lambda: (x(),)):
    def register(function):
        CASES[function.__name__] = (function, make)
        return function
    return register


def torch_case(make=lambda: (x(),)):
    return case(make) if torch else lambda function: None


def noted(tensor):
    tensor.mark = 1
    return tensor


@case()
def tensor(x):
    return x + 1


@case()
def nothing(x):
    x + 1


@case()
def nest(x):
    return (x + 1, [x + 2, {"a": x + 3, 4: None, (1, "b"): (x * 2,)}], "text", 1.5, True, None, b"raw", 2 + 1j, ...)


@case()
def empty_containers(x):
    return [], {}, (), set(), collections.OrderedDict(), collections.deque(), [[]]


@case()
def namespaces(x):
    return types.SimpleNamespace(y=x + 1), types.SimpleNamespace()


def viewed():
    behind = {"a": x(), "b": [1]}
    return x(), behind, types.MappingProxyType(behind), behind.values()


@case(viewed)
def views_of_dictionaries(x, behind, proxy, values):
    before = proxy["a"]
    behind["a"] = x + proxy["a"]
    proxy["b"].append(len(values))
    behind["c"] = x + 2
    return before + 1, proxy, values


@case()
def constants(x):
    return {"type": Plain, "function": helper, "color": Color.RED, "range": range(1, 9, 2), "slice": slice(1, None, 2),
            "module": gc, "nan": float("nan"), "minus": -0.0, "big": 10 ** 40, "frozen": frozenset("ab"),
            "builtin": len}


@torch_case()
def torch_constants(x):
    return [x.device, x.dtype, x.shape, torch.channels_last, torch.strided, torch]


@case()
def ordered_dict(x):
    out = collections.OrderedDict(a=x + 1, b=x + 2, c=3)
    out.move_to_end("a")
    return out


@case()
def default_dict(x):
    out = collections.defaultdict(list)
    out["a"].append(x + 1)
    return out


@case()
def deque(x):
    return collections.deque([x + 1, 2, x + 3, x + 4], maxlen=3)


@case()
def named_tuple(x):
    return Pair(x + 1, Pair(x * 2, None))


@case()
def named_by_c(x):
    kept = os.terminal_size((x + 3, [x * 4]))  # a type of the interpreter's that takes anything
    return os.terminal_size((x + 1, os.terminal_size((x * 2, None)))), {"k": kept, "l": [kept]}, os.times_result(range(5))


@case(lambda: (x(), os.terminal_size((x(), [1])), Holder()))
def named_by_c_of_arguments(x, size, holder):
    size.lines.append(size.columns + 1)
    holder.keys = os.terminal_size((size, x * 2))
    return size, holder.keys


@torch_case(lambda: (x(), Holder()))
def named_by_torch(x, holder):
    holder.keys = x.sort(1)
    return x.max(1), {"deep": ([x.topk(2)], x.aminmax(), torch.frexp(x))}, torch.linalg.slogdet(x[:2, :2])


@case()
def tuple_subclass(x):
    out = NamedTuple((x + 1, 2))
    out.extra = x * 3
    return out


@case()
def dataclass(x):
    return Plain(x + 1, Plain(x * 2))


@case()
def frozen_dataclass(x):
    return Frozen(x + 1)


@case()
def frozen_slotted(x):
    out = object.__new__(FrozenSlotted)
    object.__setattr__(out, "x", x + 1)
    object.__setattr__(out, "note", [1])
    return out


@case()
def slots(x):
    out = MoreSlotted(x + 1)  # y and z stay unset
    out.free = x * 2
    return out


@case()
def namespace_class(x):
    class_ = Plain
    out = class_(x + 1)
    out.later = {"deep": [x * 2]}
    del out.y
    return out


@case()
def loud(x):
    out = Loud(x + 1)
    out.__dict__["hidden"] = x * 2  # a property of the class hides it
    return out


@case()
def loud_containers(x):
    return LoudList([x + 1, 2]), LoudDict(a=x + 2)


@case(lambda: (x(), Cache()))
def output_like(x, cache):
    return OutputLike(x + 1, cache)


@case()
def the_argument(x):
    return x


@case(lambda: ({"a": [x()]}, (x(),)))
def parts_of_arguments(nested, pair):
    return [nested["a"], nested["a"][0], pair, nested]


@torch_case()
def view_of_argument(x):
    return x[1:], x.t(), x[0, 1:], x.view(-1)


@torch_case(lambda: (aligned(torch.arange(40.0))[8:20].reshape(3, 4),))
def view_of_slice(x):
    return x[1:, 2:]


@torch_case()
def other_type_view(x):
    return x.view(torch.int32)


@torch_case()
def chunks(x):
    return (x + 1).flatten().chunk(3)


@torch_case()
def whole_and_view(x):
    y = x + 1
    return y, y[1], y.t()


@torch_case()
def offset_view_only(x):
    return (x + 1).flatten()[2:5]


@case()
def same_twice(x):
    y = x + 1
    return [y, y, {"again": y}]


@case()
def shared_list(x):
    shared = [x + 1]
    return {"a": shared, "b": shared}


@case()
def circle(x):
    out = {"x": x + 1}
    out["self"] = [out, (out,)]
    return out


@torch_case()
def weights(x):
    return MODULE.weight, MODULE.table, MODULE, MODULE.note


@torch_case()
def view_of_weight(x):
    return MODULE.weight.data.t(), MODULE.table[1:]


@torch_case()
def kinds_of_tensors(x):
    return [x.to(torch.float16), x.long(), x > 2, torch.empty(0), torch.empty(0, 3), torch.tensor(3.0), x.bfloat16(),
            (x + 1).expand(2, 2, 3)]


@case(lambda: (x(), Cache(12)))
def fill_cache(x, cache):
    for layer in range(12):
        cache.update(x, layer)
    return x + 1


def warm_cache():
    cache = Cache(12)
    for holder in cache.layers:
        holder.keys, holder.values, holder.initialized = x(), x(), True
    return x(), cache


@case(warm_cache)
def grow_cache(x, cache):
    for layer in range(12):
        cache.update(x + 1, layer)
    cache.seen = 3
    return OutputLike(x + 1, cache)


@case(lambda: (x(), [x(), x(), 5]))
def replace_item(x, items):
    items[1] = x + 1
    items[2] = "five"


@case(lambda: (x(), [x()], LoudList([x(), 1])))
def append(x, items, loud):
    items.append(x + 1)
    items.append(Plain(x + 2, items))
    list.append(loud, (x + 3,))
    return items[0]


@case(lambda: (x(), [x(), x(), x()], [1, x(), 3]))
def shorten(x, items, more):
    del items[1:]
    more.pop(0)
    return len(more)


@case(lambda: (x(), {"a": x(), "b": 2, 3: 4}, collections.OrderedDict(p=x(), q=x(), r=1)))
def dictionaries(x, plain, ordered):
    plain["a"] = x + 1
    plain["new"] = {"inner": x + 2}
    del plain["b"]
    plain[Plain] = "by class"
    ordered["q"] = x * 3
    ordered["s"] = None
    del ordered["r"]


@case(lambda: (x(), {"a": x(), "b": 2, "c": 3}, collections.OrderedDict(p=x(), q=x(), r=1)))
def moved_entries(x, plain, ordered):
    plain["a"] = plain.pop("a")
    plain["b"] = x + 1
    ordered.move_to_end("p")
    ordered.move_to_end("r", last=False)
    ordered["q"] = x + 2


def made_keys():
    """Of another object at each call, as of a string that is put together."""
    number = len([1] * 7)
    return f"layer_{number}", 1000 + number, (2000 + number, f"k{number}"), number + 0.5, 1j * number, Plain


@case(lambda: (x(), *(kind([("first", 1), *((key, 2) for key in made_keys()), ("last", 3)])
                      for kind in (dict, collections.OrderedDict))))
def equal_keys_in_the_middle(x, plain, ordered):
    for d in (plain, ordered):
        for key in made_keys():
            d[key] = [x + 1, d.pop(key)]


@case(lambda: (x(), *([kind([("first", 1), (key, 2)]) for key in made_keys()]
                      for kind in (dict, collections.OrderedDict))))
def equal_keys_at_the_end(x, plain, ordered):
    for d, key in zip(plain + ordered, made_keys() * 2):
        before = d.pop(key)
        d[key] = [x + 1, before]


@case(lambda: (x(), [{"a": 1, key: 2, "b": 3} for key in made_keys()], named(**{made_keys()[0]: 5, "other": 6})))
def equal_keys_and_others(x, dicts, holder):
    for d, key in zip(dicts, made_keys()):
        before = d.pop(key)
        d["new"] = x + 1
        d[key] = before
        del d["a"]
    name = made_keys()[0]
    value = getattr(holder, name)
    delattr(holder, name)
    setattr(holder, name, [value])


@case(lambda: (x(), [{"a": 1, key: 2} for key in made_keys()]))
def equal_keys_put_back(x, dicts):
    for d, key in zip(dicts, made_keys()):
        d[key] = d.pop(key)


@case(lambda: (x(), {1: 1, 2.0: 2, "a": 3}, {float("nan"): 1, "a": 2}))
def equal_keys_of_other_types_set(x, d, with_nan):
    d[True] = x + 1  # 1 stays the key
    d[2] = x + 2
    with_nan["a"] = x + 3


def with_one_dict():
    first, second = Plain(x(), [1]), Plain(None)
    second.__dict__ = first.__dict__
    return first, second


@case(lambda: (x(), *with_one_dict()))
def attributes_of_two(x, first, second):
    second.made = x + 1
    del first.y
    second.z, first.x = first.x, [x + 2]


def with_its_dict():
    first = Plain(x(), [1])
    return first, vars(first)


@case(lambda: (x(), *with_its_dict(), *with_its_dict()[::-1]))
def attributes_and_their_dict(x, first, of_first, of_second, second):
    of_first["made"] = x + 1
    del first.y, of_second["y"]
    second.x = first.x = [x + 2]
    return of_first, of_second


@case(lambda: (x(), Plain(x(), [1]), MoreSlotted(x()), LoudDict(a=1), Loud(x())))
def attributes(x, plain, slotted, loud_dict, loud):
    del plain.y
    plain.made = plain
    slotted.y = x + 1
    del slotted.x
    slotted.free = [x + 2]
    dict.__setitem__(loud_dict, "b", x + 3)
    loud.__dict__["hidden"] = x + 4
    loud.__dict__["x"] = 1
    plain.x, loud.__dict__["y"] = loud, plain.x


@case(lambda: (x(), Plain(1), Plain(2)))
def moved_attribute(x, a, b):
    value = a.x
    del a.x  # comes back behind y
    a.x = value
    b.x, b.y = b.y, b.x


@case(lambda: (x(), Cache(1)))
def new_layers(x, cache):
    cache.layers.append(Holder())
    cache.layers[1].keys = x + 1
    cache.layers[0] = cache.layers[1]
    cache.other = cache


@torch_case(lambda: (x(), Holder()))
def marked_tensors(x, holder):
    made, view, twice = x + 1, x[1:], x * 2
    made.static, made.note = "unguarded", (1, 2.5, None)
    view.static = True
    twice.last, twice.first = 1, 2
    holder.keys = [made, twice]
    return made, view, twice[1], twice


@torch_case(lambda: (noted(x()), [noted(x())]))
def keeps_marks(x, items):
    x.mark = 2
    items[0].other = "new"
    return x, x + items[0]


@torch_case(lambda: (x(), [x()]))
def attribute_of_tensor(x, items):
    items[0].mark = x + 1
    x.note = "read"


@torch_case(lambda: (x(), Holder(), MODULE.note))
def weight_kept_by_argument(x, holder, note):
    holder.keys = MODULE.weight
    holder.values = x.t()
    return note is MODULE.note


class Outcomes(Check):
    also_counted = (os.terminal_size, Plain, helper, Color.RED, Loud, Pair, OutputLike, Slotted)


for case_name, (case_function, case_arguments) in CASES.items():
    def test(self, function=case_function, make=case_arguments):
        self.check(function, make, MODULE, ordered=not function.__name__.startswith(("moved_", "equal_keys_")))
    setattr(Outcomes, "test_" + case_name, test)


if __name__ == "__main__":
    main()
