"""What is refused of a call, and told apart in two, with the words that must be in the reason."""
import collections
import ctypes
import os
import threading
import types
import unittest
import weakref

from outcome import PROBE, REFUSED, Observed, main, torch
from outcome_shapes import (MODULE, Cache, Color, Frozen, Holder, OutputLike, Pair, Plain, Slotted, aligned, named,
                            without_items, x)
from outcome_test import CASES, warm_cache

GLOBAL_LIST = [1]
GLOBAL_OBJECT = Plain(1)
KEPT = []
WEAK = []


if torch:
    class Special(torch.Tensor):
        pass


def keep(value):
    KEPT.append(value)
    return value


def generator(x):
    yield x


def with_grad(x):
    with torch.enable_grad():
        return torch.ones(2, requires_grad=True) * 2


def inference(x):
    with torch.inference_mode():
        return [torch.ones(2)]


def weakly(x):
    out = Plain(x + 1)
    WEAK[:] = [weakref.ref(out)]
    return out


def marked(x):
    y = x + 1
    y.mark = [1]
    return y


def marked_with_itself(x):
    y = x + 1
    y.mark = y
    return y


def marked_by_another(x, shared={"mark": 1}):
    y = x + 1
    y.__dict__ = shared
    return y


def noted(tensor, **attributes):
    vars(tensor).update(attributes)
    return tensor


def borrowed_dict(x, shared={"x": 1}):
    out = Plain(None)
    out.__dict__ = shared
    return out


def bad_key(x):
    return {Pair(1, 2): x + 1}


def deep(x):
    out = []
    for _ in range(500):
        out = [out]
    return out


def change_module(x):
    MODULE.last = x + 1
    return x + 1


def change_class(x, holder):
    holder.__class__ = Plain


def resize(x):
    x.resize_(1)


def exchange(x):
    x.data = x + 1


HOLDER = Holder()


def set_entry(key):
    def function(x, d):
        d[key] = 2
    return function


class Bare:
    pass


def change_nan(how):
    def function(x, d):
        key = next(key for key in d if key not in ("first", "last"))
        if how != "set":
            before = d.pop(key)
        if how != "pop":
            d[key] = 5
    return function


def put_in_again(key):
    def function(x, d):
        d[key] = d.pop(key)
    return function


def define(x, holder):
    Holder.defined = len(vars(Holder))


def function_with_cell():
    count = 0

    def function(new=None):
        nonlocal count
        count = count if new is None else new
    return function


def change_cell(x, function):
    function(object)


def change_set(x, things):
    things.add(2)


def raises(x):
    raise KeyError(x)


REFUSALS = [
    (lambda x: Plain(x + 1, [generator(x)]), (x,), "result.y[0]: an object of type generator"),
    (lambda x: {"lock": threading.Lock()}, (x,), "result['lock']: an object of type _thread.lock"),
    (lambda x: keep([x + 1]), (x,), "result: an object of type list that is also referred to from elsewhere"),
    (lambda x: (x, GLOBAL_LIST), (x,), "result[1]: an object of type list that is also referred to"),
    (lambda x: (x, keep(([x],))), (x,), "result[1]: an object of type tuple that is also referred to"),
    (lambda x: GLOBAL_OBJECT, (x,), "result: an object of type Plain that is also referred to"),
    (weakly, (x,), "result: an object of type Plain that is weakly referred to elsewhere"),
    (borrowed_dict, (x,), "__dict__ is not its own"),
    (bad_key, (x,), "a dictionary with a key of type Pair"),
    (lambda x: {1, 2}, (x,), "result: a set, whose order cannot be made again"),
    (lambda x: OSError(1), (x,), "result: an object of type OSError cannot be made again"),
    (lambda x: types.MappingProxyType({"a": x}), (x,), "result: an object of type mappingproxy cannot be made again"),
    (lambda x: {"a": x}.values(), (x,), "result: an object of type dict_values cannot be made again"),
    (lambda x: [os.stat("/")], (x,), "result[0]: an object of type os.stat_result cannot be made again"),
    (lambda x: keep(os.terminal_size((1, 2))), (x,), "os.terminal_size that is also referred to from elsewhere"),
    (without_items, (x,), "result: an object of type os.terminal_size whose items are not set"),
    (lambda x: iter([1]), (x,), "result: an object of type list_iterator"),
    (lambda x: [x].append, (x,), "result: an object of type builtin_function_or_method"),
    (deep, (x,), "nested too deep"),
    (lambda x, h: {"at": id(h)}, (x, Holder), "result['at']: a number that is an address"),
    (lambda x, h: setattr(h, "at", id(h)), (x, Holder), "argument Holder.at: a number that is an address"),
    (lambda x: (1, (2, id(MODULE))), (x,), "result: a number that is an address"),
    (lambda x, n: n, (x, lambda: MODULE.y if torch is None else MODULE.note),
     "result: reached both from the arguments and from the module"),
    (change_module, (x,), "the call changed the module"),
    (change_class, (x, Holder), "argument Holder: the call changed its class"),
    (define, (x, Holder), "argument Holder's class: the call changed the class"),
    (change_set, (x, lambda: {1}), "argument set: the call changed it, which cannot be repeated"),
    (lambda x, h: setattr(h, "keys", threading.Lock()), (x, Holder), "argument Holder.keys: an object of type"),
    (lambda x, c: setattr(c.layers[1], "values", generator(x)), (x, Cache),
     "argument Cache.layers[1].values: an object of type generator"),
    (set_entry("new"), (x, lambda: {Frozen(1): 1}),
     "argument dict: the call changed a dictionary with a key of type Frozen"),
    (set_entry(Color.RED), (x, lambda: {Color.RED: 1}), "changed a dictionary with a key of type Color"),
    (lambda x, d: d.update(dict.fromkeys(d, 2)), (x, lambda: {HOLDER: 1}),
     "changed a dictionary with a key of type Holder"),
    *((change_nan(how), (x, lambda key=key: {"first": 1, key(): 2, "last": 3}), "with a key that is a NaN, or has one")
      for how in ("set", "pop", "move")
      for key in (lambda: float("nan"), lambda: complex(1, float("nan")), lambda: (1, (float("nan"), 2)))),
    (lambda x: {float("nan"): x + 1}, (x,), "result: a dictionary with a key that is a NaN"),
    *((put_in_again(key), (x, lambda before=before: {before: 1}), "put an equal key of another kind in a dictionary")
      for before, key in ((1, True), (1, 1.0), (2.0, 2), (0.0, -0.0), ((1, 2), (True, 2)), (complex(1, 0), 1))),
    (lambda x, h: setattr(h, "__dict__", dict(vars(h), keys=2)), (x, Holder), "Holder: the call replaced its __dict__"),
    (lambda x, a, b: setattr(a, "__dict__", vars(b)), (x, lambda: Plain(1), lambda: Plain(1)), "replaced its __dict__"),
    (lambda x, a, b: setattr(a, "__dict__", vars(b)), (x, Bare, lambda: Plain(1)), "replaced its __dict__"),
    (change_cell, (x, function_with_cell), "argument function's own object[0]: the call changed it"),
    (raises, (x,), "raised an exception"),
]
TORCH_REFUSALS = [
    (lambda x: OutputLike(with_grad(x)), (x,), "result.logits: a tensor that requires grad"),
    (lambda x: [torch.nn.Parameter(x + 1)], (x,), "result[0]: a parameter made by the call"),
    (lambda x: (x + 1).as_subclass(Special), (x,),
     "result: an object of type Special, a subclass of Tensor, made by the call"),
    (lambda x: {"s": (x + 1).to_sparse()}, (x,), "result['s']: a tensor that is not strided, or not understood"),
    (lambda x: torch.ones(2, dtype=torch.complex64).conj(), (x,),
     "result: a tensor that is not strided, or not understood"),
    (marked, (x,), "result: a tensor with attributes of its own that are no plain values"),
    (marked_with_itself, (x,), "result: a tensor with attributes of its own that are no plain values"),
    (marked_by_another, (x,), "result: an object of type Tensor whose __dict__ is not its own"),
    (lambda x: noted(x + 1, at=id(MODULE)), (x,), "result.at: a number that is an address"),
    (lambda x: keep(x + 1), (x,), "result: an object of type Tensor that is also referred to from elsewhere"),
    (lambda x: keep((x + 1)[1:]), (x,), "result: an object of type Tensor that is also referred to from elsewhere"),
    (lambda x, w: w, (x, lambda: MODULE.weight), "result: reached both from the arguments and from the module"),
    (lambda x, w: w.t(), (x, lambda: MODULE.weight),
     "result: a view of memory that both the arguments and the module have"),
    (inference, (x,), "result[0]: a tensor of another inference mode than the call's"),
    (lambda x: torch.from_dlpack(x[1:]), (x,), "result: a tensor whose storage overlaps another one's"),
    (lambda x: [x.data_ptr() + 4], (x,), "result[0]: a number that is an address"),
    (lambda x: (lambda y: (y.data_ptr(), y))(x + 1), (x,), "result[0]: a number that is an address"),
    (lambda x: MODULE.weight.data_ptr(), (x,), "result: a number that is an address"),
    (resize, (x,), "argument Tensor: the call gave the tensor another shape"),
    (exchange, (x,), "argument Tensor: the call gave the tensor another shape or other memory"),
]


class Refusals(unittest.TestCase):
    def test_refusals(self):
        for function, makers, words in REFUSALS + (TORCH_REFUSALS if torch else []):
            with self.subTest(words):
                observed = Observed(function, tuple(make() for make in makers), MODULE)
                self.assertIn(words, observed.reason() or "learned")
                vars(MODULE).pop("last", None)
                vars(Holder).get("defined") and delattr(Holder, "defined")
                del KEPT[:]

    def test_differences(self):
        count = iter(range(100))
        def alternating(a, b):
            return a if next(count) % 2 else b

        def aliased(x):
            first = [x + 1]
            return [first, first] if next(count) % 2 else [first, [x + 1]]

        def setter(name):
            def function(x, holder):
                setattr(holder, name + str(next(count)), 1)
            return function

        def in_slot(x, slotted):
            if next(count) % 2:
                slotted.x = 2
            else:
                del slotted.x

        def sometimes(x, holder):
            if next(count) % 2:
                holder.keys = x + 1

        table = [
            (lambda x: {"n": [0, next(count)]}, (x,), "result['n'][1]: another value in the other run"),
            (lambda x: Plain(float(next(count))), (x,), "result.x: another value in the other run"),
            (alternating, (Holder, Holder), "result: another object of the arguments in the other run"),
            (lambda x: lambda: x, (x,), "result: another object in the other run"),
            (lambda x: [Plain(1), Frozen(1)][next(count) % 2:][:1], (x,),
             "result[0]: of another class in the other run"),
            (lambda x: [1, [x + 1]][next(count) % 2], (x,), "result: of another kind in the other run"),
            (lambda x: collections.deque(maxlen=next(count)), (x,), "result: another greatest length in the other run"),
            (lambda x: [frozenset("a"), frozenset("b")][next(count) % 2], (x,),
             "result: another value in the other run"),
            (lambda x: [0] * next(count), (x,), "result: another number of items in the other run"),
            (aliased, (x,), "result[1]: shared otherwise in the other run"),
            (setter("a"), (x, Holder), ": changed in one run; in the other argument Holder.a"),
            (in_slot, (x, lambda: Slotted(1)), "argument Slotted.x: set in one run and not in the other"),
            (sometimes, (x, Holder), "argument Holder.keys: changed in one run and not in the other"),
            (lambda x: {str(next(count)): 1}, (x,), "not there in the other run"),
            (lambda x: [-0.0, 0.0][next(count) % 2], (x,), "result: another value in the other run"),
        ]
        torch_table = [
            (lambda x: torch.ones(1 + next(count)), (x,), "result: a tensor of another shape in the other run"),
            (lambda x: x.to([torch.float16, torch.int32][next(count) % 2]), (x,),
             "result: a tensor of another type in the other run"),
            (lambda x: noted(x + 1, mark=next(count)), (x,), "result.mark: another value in the other run"),
            (lambda x: [noted(x[1:], mark=next(count))], (x,), "result[0].mark: another value in the other run"),
            (lambda x: noted(x + 1, **{"mark%d" % next(count): 1}), (x,), "not there in the other run"),
            (lambda x: noted(x + 1, **dict.fromkeys("ab"[next(count) % 2 :])), (x,), "not there in the other run"),
            (lambda x: noted(x + 1, **dict.fromkeys("ba"[: next(count) % 2])), (x,),
             "another number of attributes in the other run"),
            (lambda x: [MODULE.weight, MODULE.table][next(count) % 2], (x,),
             "result: another object of the module in the other run"),
            (lambda x: x[next(count) % 2], (x,), "result: another view in the other run"),
            (lambda x: x.device if next(count) % 2 else torch.device("cuda", 1), (x,),
             "result: another value in the other run"),
            (lambda x: list((x + 1)[:2] if next(count) % 2 else [x[0] + 1, x[1] + 1]), (x,),
             "another storage in the other run"),
        ]
        for function, makers, words in table + (torch_table if torch else []):
            with self.subTest(words):
                first, second = (Observed(function, tuple(make() for make in makers), MODULE) for _ in range(2))
                self.assertIsNone(first.reason())
                self.assertIsNone(second.reason())
                self.assertIn(words, first.difference(second) or "the same")

    @unittest.skipUnless(torch, "no torch")
    def test_inference_mode(self):
        """Under inference mode, as the tensors that the repeating process makes then."""
        with torch.inference_mode():
            observed = Observed(lambda x: [x + 1, x[1:]], (x(),), MODULE)
        self.assertIsNone(observed.reason())

    def test_other_arguments(self):
        """Repeated for arguments of another form, nothing is done."""
        observed = Observed(*[CASES["grow_cache"][0], CASES["grow_cache"][1](), MODULE])
        arguments = (x(), Cache(12))
        self.assertIs(observed.repeat(observed.copies(), arguments), REFUSED)

    def test_other_classes(self):
        """What must not be written to is not, whoever says that the arguments are the same."""
        def function(x, slotted):
            slotted.x = 5

        class Other:
            __slots__ = ("x", "y")

        observed = Observed(function, (x(), Slotted(1)), MODULE)
        self.assertIsNone(observed.reason())
        other, left = Other(), ctypes.c_int()
        for arguments in ((x(), other), (x(),), (x(), Slotted(Slotted(2)))):
            result = PROBE.probe_repeat_failing(observed.handle, [], arguments, REFUSED, 1000, ctypes.byref(left))
            self.assertIs(result, REFUSED)
        self.assertFalse(hasattr(other, "x"))

    @unittest.skipUnless(torch, "no torch")
    def test_views_stay_inside(self):
        def function(x):
            return x.as_strided((20,), (1,), 0)

        def part(size):
            return (aligned(torch.arange(float(size)))[:4],)

        observed = Observed(function, part(20), MODULE)
        self.assertIsNone(observed.reason())
        self.assertEqual(observed.repeat([], part(24)).tolist(), list(range(20)))
        self.assertIs(observed.repeat([], part(16)), REFUSED)

    @unittest.skipUnless(torch, "no torch")
    def test_groups(self):
        def function(x):
            y, z = (x + 1).chunk(2)
            return [torch.empty(0), y, torch.empty(0), x * 2, z]
        observed = Observed(function, (x(),), MODULE)
        # The last one is what y and z are views of.
        self.assertEqual([made[0] for made in observed.made()], [0, 1, 2, 3, 1, 1])

    @unittest.skipUnless(torch, "no torch")
    def test_holds_no_tensors(self):
        """What eager frees during or after the call is freed: nothing of the observation keeps it."""
        died = []

        def function(x, cache):
            watch = weakref.ref(cache.layers[0].keys)
            cache.layers[0].keys = x + 1
            died.append(watch() is None)
            return x + 1
        arguments = warm_cache()
        observed = Observed(function, arguments, MODULE)
        self.assertIsNone(observed.reason())
        self.assertEqual(died, [True])
        watches = [weakref.ref(value) for value in (observed.result(), *arguments)]
        del arguments
        PROBE.probe_drop_result(observed.handle)
        self.assertEqual([watch() for watch in watches], [None] * 3)

    def test_destructor_sees_all_done(self):
        """What a replaced object's end runs sees all effects, and the result is not hurt by what it does."""
        def make():
            cache = Holder()
            cache.keys, cache.values = Plain(0), 1
            return x(), cache

        def function(x, cache):
            cache.keys, cache.values = None, 2
            return Plain(cache)
        observed = Observed(function, make(), MODULE)
        self.assertIsNone(observed.reason())
        arguments = make()
        cache = arguments[1]
        ends = []
        weakref.finalize(cache.keys, lambda: (ends.append(dict(vars(cache))), vars(cache).clear()))
        result = observed.repeat([], arguments)
        self.assertIs(result.x, cache)
        self.assertEqual(ends, [{"keys": None, "values": 2, "initialized": False}])


if __name__ == "__main__":
    main()
