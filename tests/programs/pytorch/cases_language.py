"""Python's language, as forwards use it: what objects and classes hold beside values, and when objects end."""

import abc
import enum
import functools
import itertools
import types
import weakref
from collections import OrderedDict, defaultdict
from types import SimpleNamespace
from typing import Any, Callable

import bed
import small
from small import CALLS, F, Net, Run, case, changed_at, data, net, nn, torch

LATER = (1, 7)  # between the observed calls, and while calls are replayed
plain = Net.forward


def made(forward: Any, **own: Any) -> Any:
    """A model with this forward, and these attributes."""
    model = net(type("Made", (Net,), {"forward": forward}))
    for name, value in own.items():
        setattr(model, name, value)
    return model


def changed_by(run: Run, make: Callable[[], Any], *changes: Callable[[Any], Any], phases: Any = LATER) -> None:
    for change in changes:
        changed_at(run, make, change, phases=phases)


def in_turns(run: Run, forward: Any, arguments: Callable[[Any, bool], Any]) -> None:
    """Calls of one signature whose arguments are made in one of two ways."""
    for turns in ("aaaaaaabbbbaaab", "bbbbbbbaaaabbba", "abababababab"):
        model = made(forward, config=SimpleNamespace(scale=1.0))
        for i, turn in enumerate(turns):
            given = arguments(model, turn == "b")
            run.see(model(data(i), *given), given, model.config, label=f"call {i} of {turns}")


class Bare:
    """An object that looks like any other of its kind."""


def alter(value: float) -> Any:
    return lambda x: x * value


MARK, OTHER, ROWS, CHOSEN = Bare(), Bare(), [[1.0], [2.0]], alter(2.0)


@case("self.mode is MARK; the global MARK is exchanged with its like, and the module stays as it was")
def global_sentinel_exchanged(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return plain(self, x) * 2 if self.mode is MARK else plain(self, x) - 1

    def exchange(_: Any) -> None:
        global MARK, OTHER
        MARK, OTHER = OTHER, MARK

    changed_at(run, lambda: made(forward, mode=MARK), exchange)


@case("the module's list is one of a global table's; the table's is replaced by an equal one, the module's stays")
def row_of_a_table_replaced(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        ROWS[0].append(3.0)  # for a moment
        y = plain(self, x) * len(self.row)
        ROWS[0].pop()
        return y

    changed_at(run, lambda: made(forward, row=ROWS[0]), lambda _: ROWS.__setitem__(0, list(ROWS[0])))


@case("returns a global function, and sets it in an argument; the global becomes another one of the same factory")
def global_function_handed_out(run: Run) -> None:
    global CHOSEN

    def forward(self: Any, x: torch.Tensor, holder: Any) -> Any:
        holder.act = CHOSEN
        return plain(self, x), CHOSEN

    model, kept = made(forward), [CHOSEN]
    for i in range(2 * CALLS):
        if i in (1, 6, 9, 17):
            CHOSEN = alter(2.0)
            kept.append(CHOSEN)
        holder = SimpleNamespace(act=None)
        y, act = model(data(i), holder)
        run.see(y, act is CHOSEN, holder.act is CHOSEN)


@case("as global_function_handed_out, and nobody keeps the old function", late=True)
def global_function_freed(run: Run) -> None:
    global CHOSEN
    model = made(lambda self, x: (plain(self, x), CHOSEN))
    for i in range(CALLS):
        if i in (6, 9):
            CHOSEN = alter(2.0)
        y, act = model(data(i))
        run.see(act(y), act is CHOSEN)
        del act


@case("an entry is taken out and put in again under an equal key that is another object (f'layer_{i}', (1000, i))")
def equal_keys_that_are_made_anew(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor, cache: Any, number: int) -> torch.Tensor:
        y = plain(self, x)
        for key in (f"layer_{number}", 1000 + number, (2000 + number, "k"), number + 0.5):
            if key in cache:
                old = cache.pop(key)
                cache[key] = y + old
        return y

    number = 7
    keys = (lambda: f"layer_{number}", lambda: 1000 + number, lambda: (2000 + number, "k"), lambda: number + 0.5)
    for kind in (dict, OrderedDict, lambda items: defaultdict(float, items)):
        for key in keys:
            model = made(forward)
            for i in range(9):
                cache = kind([("first", 0.5), (key(), 2.0), ("last", 1.0)])
                run.see(model(data(i), cache, number), cache, list(cache))


@case("a dictionary whose key is nan, another object at each call: taken out, set, put in again")
def nan_as_a_key(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor, table: dict, how: str) -> torch.Tensor:
        y, key = plain(self, x), next(key for key in table if key != key)
        if how == "pop":
            y = y * table.pop(key)
        else:
            table[key] = 5.0 if how == "set" else table.pop(key) + 1
        return y

    for how in ("pop", "set", "move"):
        model = made(forward)
        for i in range(CALLS):
            table = {"first": 0.5, float("nan"): 2.0, "last": 1.0}
            run.attempt(model, data(i), table, how)
            run.see(list(table.values()))


@case("two arguments share their __dict__ (Borg), or have equal ones: set in one, read from the other")
def arguments_that_share_a_dict(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
        a.scale = 3.0
        return plain(self, x) * b.scale

    def arguments(_: Any, shared: bool) -> Any:
        a, b = Bare(), Bare()
        a.__dict__ = {"scale": 1.0}
        b.__dict__ = a.__dict__ if shared else {"scale": 1.0}
        return a, b

    in_turns(run, forward, arguments)


@case("an argument is vars() of another one, or an equal dictionary; one is set, the other one read")
def argument_is_the_vars_of_another(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor, config: Any, options: dict) -> torch.Tensor:
        options["scale"] = 3.0
        return plain(self, x) * config.scale

    def arguments(_: Any, shared: bool) -> Any:
        config = SimpleNamespace(scale=1.0)
        return config, vars(config) if shared else dict(vars(config))

    in_turns(run, forward, arguments)


@case("an argument is vars() of the module's settings, or an equal dictionary; the call sets it for a moment")
def argument_is_the_vars_of_settings(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor, options: dict) -> torch.Tensor:
        before, options["scale"] = options["scale"], 4.0
        y = plain(self, x) * self.config.scale
        options["scale"] = before
        return y

    in_turns(run, forward, lambda model, shared: (vars(model.config) if shared else {"scale": 1.0},))


TICKS: Any = None
ALIVE = [True]


class Dying:
    def __init__(self, end: Callable[[], Any]) -> None:
        self.end = end

    def __del__(self) -> None:
        self.end()


@case("an argument's object dies in the call; its __del__ writes to a tensor that the call reads afterwards")
def dies_and_launches(run: Run) -> None:
    global TICKS

    def forward(self: Any, x: torch.Tensor, holder: Any) -> torch.Tensor:
        holder.token = None
        return plain(self, x) * TICKS

    TICKS, model = torch.ones(64, device=bed.device()), made(forward)
    for i in range(CALLS):
        run.see(model(data(i), SimpleNamespace(token=Dying(lambda: TICKS.add_(1)))), TICKS.clone())


@case("an argument's object dies in the call; its __del__ sets a flag that the call reads afterwards")
def dies_and_tells(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor, holder: Any) -> torch.Tensor:
        holder.pop()
        return plain(self, x) * (2 if ALIVE else -1)

    model = made(forward)
    for i in range(CALLS):
        ALIVE[:] = [True]
        run.see(model(data(i), [1, Dying(lambda: ALIVE.clear())]), ALIVE)


@case("the call drops an argument's object and tensor, and asks weak references whether they are gone")
def weak_references_in_the_call(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor, holder: Any, ref: Any) -> Any:
        inside = weakref.ref(holder.cached)
        holder.token = holder.cached = None
        return plain(self, x) + (1 if ref() is None else 5) + (10 if inside() is None else 50), inside() is None

    model = made(forward)
    for i in range(CALLS):
        holder = SimpleNamespace(token=Bare(), cached=data(30 + i))
        ref = weakref.ref(holder.token)
        run.see(model(data(i), holder, ref), ref() is None, holder)


@case("weakref.finalize and a callback of an argument's object launch work as it is replaced in the call")
def finalizers_launch(run: Run) -> None:
    global TICKS

    def forward(self: Any, x: torch.Tensor, holder: Any) -> torch.Tensor:
        y = plain(self, x) + TICKS
        holder.token = 1.0
        return y * TICKS

    TICKS, model = torch.ones(64, device=bed.device()), made(forward)
    for i in range(CALLS):
        holder = SimpleNamespace(token=Bare())
        end = weakref.finalize(holder.token, TICKS.mul_, 1.25)
        back = weakref.ref(holder.token, lambda _: TICKS.sub_(0.125))
        run.see(model(data(i), holder), TICKS.clone(), end.alive, back() is None)


TABLE: dict[str, Any] = {"scale": 1.0}


@case("a class attribute is a bound method of C's (get = TABLE.get): the table changes")
def bound_builtin_in_a_class(run: Run) -> None:
    class Looking(Net):
        lookup = TABLE.get

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.lookup("scale", 7.0)

    TABLE["scale"] = 1.0
    changed_at(run, lambda: net(Looking), lambda _: TABLE.update(scale=TABLE["scale"] + 1))


@case("a class attribute is a bound method of C's that takes something away at each call (take = values.pop)")
def taking_builtin_in_a_class(run: Run) -> None:
    values = [float(i) for i in range(30)]
    model = made(lambda self, x: plain(self, x) * self.take())
    type(model).take = values.pop
    for i in range(CALLS):
        run.see(model(data(i)), len(values))


@case("an enumeration's table that is no member, reached by way of an object, is changed in place")
def table_of_an_enumeration(run: Run) -> None:
    class Kind(enum.Enum):
        LOW = 1
        TABLE = enum.nonmember([1.0])

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return plain(self, x) * self.kinds.TABLE[0] + type(self.kind).TABLE[0]

    changed_at(run, lambda: made(forward, kinds=Kind, kind=Kind.LOW), lambda _: Kind.TABLE.insert(0, Kind.TABLE[0] + 1))


@case("members of an enumeration by value and in turn: its tables are edited, as when members are added afterwards")
def lookups_of_an_enumeration(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return plain(self, x) * len(self.kinds("low").name) + len(self.kinds) + len([*self.kinds][-1].name)

    changed_by(
        run,
        lambda: made(forward, kinds=enum.Enum("Kind", {"LOW": "low", "LONGER": 2})),
        lambda m: m.kinds._value2member_map_.update(low=m.kinds.LONGER),
        lambda m: m.kinds._member_names_.__delitem__(slice(1, None)),
        phases=small.PHASES,
    )


@case("class attributes with two underscores (__settings__, __config__, as pydantic has them) are changed in place")
def dunder_attributes_of_a_class(run: Run) -> None:
    def make() -> Any:
        class Set(Net):
            __settings__ = {"scale": [1.0]}
            __config__ = type("Config", (), {"add": 0.5})

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x) * self.__settings__["scale"][0] + self.__config__.add

        return net(Set)

    changed_by(
        run,
        make,
        lambda m: m.__settings__.update(scale=[m.__settings__["scale"][0] + 1]),
        lambda m: m.__settings__["scale"].insert(0, 5.0),
        lambda m: setattr(m.__config__, "add", m.__config__.add + 1),
    )


@case("the same of a part none of whose methods run: __settings__ of its class, by name and by getattr")
def dunder_attributes_of_a_part(run: Run) -> None:
    def make() -> Any:
        class Part:
            __settings__ = {"scale": [1.0]}
            __config__ = type("Config", (), {"add": [0.5]})

        def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
            settings = getattr(type(self.part), "__settings__")
            return plain(self, x) * settings["scale"][0] + self.part.__config__.add[0]

        return made(forward, part=Part())

    changed_by(
        run,
        make,
        lambda m: m.part.__settings__["scale"].insert(0, 5.0),
        lambda m: type(m.part).__settings__.update(scale=[m.part.__settings__["scale"][0] + 1]),
        lambda m: m.part.__config__.add.insert(0, m.part.__config__.add[0] + 1),
    )


class Doubling:
    def __init__(self) -> None:
        self.values = [2.0]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.values[-1]


@case("things put into nn.Module itself: a namespace, a deep dictionary, an object that is called, a counter")
def put_into_a_librarys_class(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.corner_act(plain(self, x)) * self.corner_config.scale + self.corner_table["a"]["b"]["c"]["d"]
        return y + (next(self.corner_ticks) if self.ticking else 0)

    def make() -> Any:
        nn.Module.corner_config, nn.Module.corner_act = SimpleNamespace(scale=1.0), Doubling()
        nn.Module.corner_table, nn.Module.corner_ticks = {"a": {"b": {"c": {"d": 0.5}}}}, itertools.count()
        return made(forward, ticking=False)

    changed_by(
        run,
        make,
        lambda m: setattr(m.corner_config, "scale", m.corner_config.scale + 1),
        lambda m: m.corner_act.values.append(m.corner_act.values[-1] + 1),
        lambda m: m.corner_table["a"]["b"]["c"].update(d=3.0),
        lambda m: setattr(m, "ticking", True),
    )
    for name in ("corner_config", "corner_act", "corner_table", "corner_ticks"):
        delattr(nn.Module, name)


@case("classes made by types.new_class, by a metaclass, with the base's __module__: what they hold is changed in place")
def classes_made_by_functions(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return plain(self, x) * self.config.scale + self.deep["a"]["b"]["c"][0]

    def names() -> dict[str, Any]:
        return {"forward": forward, "config": SimpleNamespace(scale=1.0), "deep": {"a": {"b": {"c": [0.0]}}}}

    makers = [
        lambda: types.new_class("New", (Net,), {}, lambda space: space.update(names())),
        lambda: abc.ABCMeta("Abstract", (Net,), names()),
        lambda: type("Linear", (Net,), {"__module__": nn.Linear.__module__, **names()}),
    ]
    for maker in makers:
        changed_by(run, lambda: net(maker()), lambda m: setattr(m.config, "scale", m.config.scale + 1))
        changed_by(run, lambda: net(maker()), lambda m: m.deep["a"]["b"]["c"].insert(0, 2.0))


@case("torch.relu, F.gelu and a class's method are patched by bound methods, partials and C's; their state changes")
def patched_by_things_with_state(run: Run) -> None:
    class Patch:
        scale = 2.0

        def act(self, x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
            return x * self.scale

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(plain(self, x)) + self.gelu(x) + F.corner()

    patch, leaky, table = Patch(), functools.partial(F.leaky_relu, negative_slope=0.5), {"v": 1.0}
    patches: list[tuple[Any, str, Any, Callable[[Any], Any]]] = [
        (torch, "relu", patch.act, lambda _: setattr(patch, "scale", patch.scale + 1)),
        (F, "gelu", patch.act, lambda _: setattr(patch, "scale", patch.scale + 1)),
        (nn.GELU, "forward", staticmethod(patch.act), lambda _: setattr(patch, "scale", patch.scale + 1)),
        (torch, "relu", leaky, lambda _: leaky.keywords.update(negative_slope=leaky.keywords["negative_slope"] + 1)),
        (F, "corner", functools.partial(table.get, "v"), lambda _: table.update(v=table["v"] + 1)),
        (F, "corner", itertools.count(1).__next__, lambda _: None),
    ]
    F.corner = lambda: 0
    for holder, name, new, change in patches:
        kept = vars(holder)[name]
        setattr(holder, name, new)
        try:
            changed_at(run, lambda: made(forward, gelu=nn.GELU()), change, phases=LATER)
        finally:
            setattr(holder, name, kept)
    del F.corner


@case("nn.Module.__call__ and _call_impl are patched by the program, and put back")
def calls_of_modules_patched(run: Run) -> None:
    model, seen = net(), []
    for name in ("__call__", "_call_impl"):
        old = getattr(nn.Module, name)

        def new(self: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(type(self).__name__)
            return old(self, *args, **kwargs) + 1

        for i in range(18):
            setattr(nn.Module, name, new if 7 <= i < 12 else old)
            run.see(model(data(i)), len(seen), label=name)
