"""What code reads of functions, classes, frames, threads and the interpreter, and of tensors beside their values: all that
no argument, attribute or global shows."""
import asyncio
import contextvars
import dataclasses
import datetime
import decimal
import enum
import gc
import inspect
import sys
import threading
import traceback
import weakref

import torch
from bed import case
from tiny import GUARDED, REFUSED, Net, data, net, reads
from cases_libraries import setter


def named(argument: "one"):
    return 1.0


def signed(argument: "one"):
    return 1.0


class Named:
    pass


class Annotated:
    argument: "one"


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Data:
    scale: float = 1.0


# Of functions.
@reads(GUARDED)
def name_of_a_function():
    return lambda _: len(named.__name__), setter(named, "__name__", "another name"), lambda: setattr(named, "__name__", "named")


@reads(GUARDED)
def qualified_name_of_a_function():
    return lambda _: len(named.__qualname__), setter(named, "__qualname__", "another name")


@reads(GUARDED)
def documentation_of_a_function():
    return lambda _: len(named.__doc__ or "1"), setter(named, "__doc__", "another text")


@reads(GUARDED)
def module_of_a_function():
    return lambda _: len(named.__module__), setter(named, "__module__", "another module")


@reads(GUARDED)
def name_of_a_forward():
    return lambda m: len(type(m).forward.__name__), lambda m: setattr(type(m).forward, "__name__", "another name")


@reads(REFUSED)
def annotations_of_a_function():
    return lambda _: len(named.__annotations__["argument"]), lambda _: named.__annotations__.update(argument="three")


@reads(REFUSED)
def signature_of_a_function():
    return (lambda _: len(inspect.signature(signed).parameters["argument"].annotation),
            setter(signed, "__annotations__", {"argument": "another text"}))


@reads(GUARDED)
def defaults_of_a_function():
    def defaulted(scale=1.0):
        return scale

    return lambda _: defaulted.__defaults__[0], setter(defaulted, "__defaults__", (3.0,))


@reads(GUARDED)
def keyword_defaults_of_a_function():
    def defaulted(*, scale=1.0):
        return scale

    return lambda _: defaulted(), lambda _: defaulted.__kwdefaults__.update(scale=3.0)


@reads(GUARDED)
def defaults_of_a_dataclass():
    return (lambda _: Data().scale, setter(Data.__init__, "__defaults__", (3.0,)),
            lambda: setattr(Data.__init__, "__defaults__", (1.0,)))


# Of classes.
@reads(GUARDED)
def name_of_a_class():
    return lambda _: len(Named.__name__), setter(Named, "__name__", "another name"), lambda: setattr(Named, "__name__", "Named")


@reads(GUARDED)
def name_of_the_modules_class():
    return lambda m: len(type(m).__name__), lambda m: setattr(type(m), "__name__", "another name")


@reads(GUARDED)
def qualified_name_of_the_modules_class():
    return lambda m: len(type(m).__qualname__), lambda m: setattr(type(m), "__qualname__", "another name")


@reads(GUARDED)
def documentation_of_a_class():
    return lambda m: len(type(m).__doc__ or "1"), lambda m: setattr(type(m), "__doc__", "another text")


@reads(GUARDED)
def name_of_a_classs_base():
    base = type("Base", (), {})
    kind = type("Kind", (base,), {})
    return lambda _: len(kind.__mro__[1].__name__), setter(base, "__name__", "another name")


@reads(REFUSED)
def annotations_of_a_class():
    return lambda _: len(Annotated.__annotations__["argument"]), lambda _: Annotated.__annotations__.update(argument="three")


@reads(GUARDED)
def attribute_of_an_enumerations_member():
    Colour.RED.scale = 1.0
    return lambda _: Colour.RED.scale, setter(Colour.RED, "scale", 3.0)


@reads(GUARDED)
def value_of_an_enumerations_member():
    return lambda _: Colour.BLUE.value, setter(Colour.BLUE, "_value_", 5), lambda: setattr(Colour.BLUE, "_value_", 2)


@reads(GUARDED)
def attribute_of_a_member_that_a_class_holds():
    holder = type("Holder", (), {"colour": Colour.RED})
    Colour.RED.shift = 1.0
    return lambda _: holder.colour.shift, setter(Colour.RED, "shift", 3.0)


# Of objects: who refers to them, and where they are.
def things(count):
    return [type("Thing", (), {})() for _ in range(count)]


@reads(REFUSED)
def number_of_references():
    thing, kept = {}, []
    return lambda _: sys.getrefcount(thing), lambda _: kept.append(thing)


@reads(REFUSED)
def number_of_referrers():
    thing, kept = [1], []
    return lambda _: len(gc.get_referrers(thing)), lambda _: kept.append([thing])


@reads(REFUSED)
def collector_switched_off():
    return lambda _: 1.0 + gc.isenabled(), lambda _: gc.disable(), gc.enable


@reads(REFUSED)
def number_of_weak_references():
    (thing,), kept = things(1), []
    return lambda _: 1.0 + weakref.getweakrefcount(thing), lambda _: kept.append(weakref.ref(thing, print))


@reads(GUARDED)
def weak_reference_dies():
    kept = things(1)
    reference = weakref.ref(kept[0])
    return lambda _: 3.0 if reference() is None else 1.0, lambda _: kept.clear()


def by_argument(run, answer):
    """`answer(x, second)`; x becomes the second tensor, of equal values, after six calls."""

    class Reading(Net):
        def forward(self, x):
            return super().forward(x) * answer(x)

    model, first, second = net(Reading), data(1), data(1)
    answer = answer(second)
    for i in range(12):
        run(model, first if i < 6 else second)


@case(REFUSED)
def hash_of_an_argument(run):
    by_argument(run, lambda second: lambda x, known=hash(second): 3.0 if hash(x) == known else 1.0)


@case(REFUSED)
def hash_of_a_tuple_of_arguments(run):
    by_argument(run, lambda second: lambda x, known=hash((1, second)): 3.0 if hash((1, x)) == known else 1.0)


@case(REFUSED)
def address_of_an_argument(run):
    by_argument(run, lambda second: lambda x, known=second.data_ptr(): 3.0 if x.data_ptr() == known else 1.0)


@case(REFUSED)
def address_of_a_storage(run):
    def look(second):
        return lambda x, known=second.untyped_storage()._cdata: 3.0 if x.untyped_storage()._cdata == known else 1.0

    by_argument(run, look)


@case(REFUSED)
def order_by_address(run):
    class Reading(Net):
        def forward(self, x, parts):
            return super().forward(x) * (1.0 if sorted(parts, key=id)[0] is parts[0] else 3.0)

    model, (low, high) = net(Reading), sorted(([1.0], [2.0]), key=id)
    for i in range(12):
        run(model, data(i), [low, high] if i < 6 else [high, low])


# A slice of a larger tensor is like any other, but not to code that looks behind it.
@case("eer{4}e{6}r")
def bytes_of_a_storage(run):
    class Reading(Net):
        def forward(self, x):
            return super().forward(x) * x.untyped_storage().nbytes()

    model, large = net(Reading), data(1, rows=10)
    for i in range(13):
        run(model, (large if 6 <= i < 12 else data(1))[0:3])


def multiplied_by(answer):
    class Reading(Net):
        def forward(self, x):
            return super().forward(x) * answer()

    return net(Reading)


# Frames.
def from_two_lines(run, answer):
    model = multiplied_by(answer)
    for i in range(6):
        run(model, data(i))
    for i in range(6):
        run(model, data(i))


def sum_of_lines(frame):
    total = 0
    while frame is not None:
        total += frame.f_lineno
        frame = frame.f_back
    return total


@case(REFUSED)
def lines_of_callers(run):
    from_two_lines(run, lambda: sum_of_lines(sys._getframe()))


@case(REFUSED)
def lines_of_callers_by_inspect(run):
    from_two_lines(run, lambda: sum_of_lines(inspect.currentframe()))


@case(REFUSED)
def lines_of_the_stack(run):
    from_two_lines(run, lambda: sum(frame.lineno for frame in inspect.stack(0)))


@case(REFUSED)
def lines_of_a_traceback(run):
    from_two_lines(run, lambda: sum(line for _, line in traceback.walk_stack(None)))


@case(REFUSED)
def lines_of_callers_by_an_exception(run):
    def look():
        try:
            raise ValueError
        except ValueError as error:
            return sum_of_lines(error.__traceback__.tb_frame)

    from_two_lines(run, look)


# Exceptions that are handled outside of the call.
def inside_of_a_handler(run, answer):
    model = multiplied_by(answer)
    for i in range(6):
        run(model, data(i))
    for i in range(6):
        try:
            raise ValueError
        except ValueError:
            run(model, data(i))
    run(model, data())


HANDLED = "asks for the exception that is handled, and was called while one is"


@case("eer{4}e{3}[ep]{4}|eer{4}[ep]{7}", reason=HANDLED)
def exception_that_is_handled(run):
    inside_of_a_handler(run, lambda: 3.0 if sys.exc_info()[0] is not None else 1.0)


@case("eer{4}e{3}[ep]{4}|eer{4}[ep]{7}", reason=HANDLED)
def exception_that_was_handled_before(run):
    def look():
        try:
            raise KeyError
        except KeyError as error:
            return 3.0 if error.__context__ is not None else 1.0

    inside_of_a_handler(run, look)


@case("eer{11}")
def exceptions_inside_of_a_handler_do_not_matter(run):
    def look():
        try:
            raise KeyError
        except KeyError:
            return 2.0

    inside_of_a_handler(run, look)


# Threads, contexts and event loops.
def in_another_thread(run, answer):
    class Reading(Net):
        def forward(self, x):
            return super().forward(x) * answer()

    def six():
        with torch.no_grad():
            for i in range(6):
                run(model, data(i))

    model = net(Reading)
    six()
    thread = threading.Thread(target=six)
    thread.start()
    thread.join()


MAIN = threading.get_ident()
LOCAL = threading.local()
VARIABLE = contextvars.ContextVar("of_a_case", default=1.0)


@case(GUARDED)
def thread_that_calls(run):
    in_another_thread(run, lambda: 1.0 if threading.current_thread() is threading.main_thread() else 3.0)


@case(GUARDED)
def number_of_the_thread(run):
    in_another_thread(run, lambda: 1.0 if threading.get_ident() == MAIN else 3.0)


@case(REFUSED)
def value_of_a_thread(run):
    LOCAL.scale = 3.0
    in_another_thread(run, lambda: getattr(LOCAL, "scale", 1.0))


@reads(GUARDED)
def name_of_the_thread():
    own = threading.current_thread()
    return lambda _: len(threading.current_thread().name), setter(own, "name", "X"), lambda: setattr(own, "name", "MainThread")


@case(GUARDED)
def value_of_another_context(run):
    class Reading(Net):
        def forward(self, x):
            return super().forward(x) * VARIABLE.get()

    model, other = net(Reading), contextvars.copy_context()
    other.run(VARIABLE.set, 3.0)
    for i in range(12):
        run(model, data(i)) if i < 6 else other.run(run, model, data(i))


@case(REFUSED)
def event_loop_that_runs(run):
    class Reading(Net):
        def forward(self, x):
            return super().forward(x) * (1.0 if asyncio._get_running_loop() is None else 3.0)

    async def six():
        for i in range(6):
            run(model, data(i))

    model = net(Reading)
    for i in range(6):
        run(model, data(i))
    asyncio.run(six())


# Settings of the interpreter and of the standard library's C code.
@reads(REFUSED)
def recursion_limit():
    limit = sys.getrecursionlimit()
    return (lambda _: sys.getrecursionlimit(), lambda _: sys.setrecursionlimit(limit + 100),
            lambda: sys.setrecursionlimit(limit))


@reads(REFUSED)
def switch_interval():
    interval = sys.getswitchinterval()
    return (lambda _: sys.getswitchinterval() * 1000, lambda _: sys.setswitchinterval(interval * 2),
            lambda: sys.setswitchinterval(interval))


def set_precision(to):
    decimal.getcontext().prec = to


@reads(REFUSED)
def precision_of_decimals():
    return lambda _: decimal.getcontext().prec, lambda _: set_precision(12), lambda: set_precision(28)


@reads(REFUSED)
def decimals():
    def divide(_):
        return decimal.Decimal(2) / decimal.Decimal("3")

    return divide, lambda _: set_precision(2), lambda: set_precision(28)


@reads(REFUSED)
def local_time():
    return lambda _: 1.0 + datetime.datetime.fromtimestamp(0).hour, lambda _: None


SCALE = 1.0


@reads(REFUSED)
def globals_of_a_function():
    return lambda _: named.__globals__["SCALE"], setter(sys.modules[__name__], "SCALE", 3.0)


# What counts each call of its own, also between those of modules.
@reads(GUARDED)
def tunable_operators():
    enable = torch._C._cuda_tunableop_enable
    return lambda _: 3.0 if torch._C._cuda_tunableop_is_enabled() else 1.0, lambda _: enable(True), lambda: enable(False)


@reads(REFUSED)
def free_memory():
    return lambda _: 1.0 + torch.cuda.memory.mem_get_info()[0], lambda _: None
