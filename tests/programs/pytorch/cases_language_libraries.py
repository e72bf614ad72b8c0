"""Python's libraries and settings, as forwards use them: logging, builtins, limits, lookups by name."""

import builtins
import contextlib
import inspect
import io
import itertools
import logging
import os
import pickle
import signal
import sys
import tempfile
from array import array
from typing import Any

import bed
from small import CALLS, Run, case, changed_at, data, nn, torch
from cases_language import Bare, changed_by, made, plain

LOG = logging.getLogger("corner")
ADAPTER = logging.LoggerAdapter(LOG, {"scale": 1.0, "deep": [0.0]})


class OwnLogger(logging.Logger):
    scale = 1.0

    def factor(self) -> float:
        return self.scale


OWN_LOG = OwnLogger("corner.own")


@case("a logger held by the module: its level, its handlers and what was set on it are read without asking it")
def logger_of_the_module(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = plain(self, x) * self.log.scale + (1 if LOG.hasHandlers() else 0)
        return y * 2 if self.log.level <= logging.DEBUG else y

    def make() -> Any:
        LOG.level, LOG.scale, LOG.propagate = logging.WARNING, 1.0, False
        LOG.handlers.clear()
        return made(forward, log=LOG)

    changed_by(
        run,
        make,
        lambda m: m.log.setLevel(logging.DEBUG),
        lambda m: setattr(m.log, "scale", m.log.scale + 1),
        lambda m: m.log.addHandler(logging.NullHandler()),
    )
    LOG.handlers.clear()


@case("what a global LoggerAdapter, and a global of the program's own class of loggers, hold is changed in place")
def logger_adapters(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return plain(self, x) * ADAPTER.extra["scale"] + ADAPTER.extra["deep"][0] + OWN_LOG.factor()

    changed_by(
        run,
        lambda: made(forward),
        lambda _: ADAPTER.extra.update(scale=ADAPTER.extra["scale"] + 1),
        lambda _: ADAPTER.extra["deep"].insert(0, ADAPTER.extra["deep"][0] + 2),
        lambda _: setattr(OWN_LOG, "scale", OWN_LOG.scale + 1),
    )


@case("a dictionary, an object and a CPU tensor that the program put into builtins are changed in place")
def things_in_builtins(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = plain(self, x) * CORNER_SETTINGS["scale"] + CORNER_OBJECT.add  # noqa: F821
        return y * CORNER_TENSOR  # noqa: F821

    values = {"CORNER_SETTINGS": {"scale": 1.0}, "CORNER_OBJECT": Bare(), "CORNER_TENSOR": torch.tensor(1.5)}
    values["CORNER_OBJECT"].add = 0.0
    vars(builtins).update(values)
    changed_by(
        run,
        lambda: made(forward),
        lambda _: values["CORNER_SETTINGS"].update(scale=values["CORNER_SETTINGS"]["scale"] + 1),
        lambda _: setattr(values["CORNER_OBJECT"], "add", values["CORNER_OBJECT"].add + 1),
        lambda _: values["CORNER_TENSOR"].add_(1),
    )
    for name in values:
        delattr(builtins, name)


@case("how many digits a number may have as text decides (sys.set_int_max_str_digits), and is changed")
def digits_of_big_numbers(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor, other: int) -> torch.Tensor:
        try:
            return plain(self, x) + len(str(self.big)) + len(f"{other}")
        except ValueError:
            return plain(self, x) * 2

    kept, model = sys.get_int_max_str_digits(), made(forward, big=7**2000)
    try:
        for i in range(4 * 7):
            sys.set_int_max_str_digits(640 if i // 7 % 2 else kept)
            run.see(model(data(i), 3**1999))
    finally:
        sys.set_int_max_str_digits(kept)


@case("a recursion that fails, and is caught, once the program has lowered the limit")
def recursion_limit_lowered(run: Run) -> None:
    def depth(n: int) -> int:
        return 0 if n == 0 else 1 + depth(n - 1)

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = plain(self, x)
        try:
            return y + depth(150)
        except RecursionError:
            return -y

    kept, model = sys.getrecursionlimit(), made(forward)
    for i in range(32):
        sys.setrecursionlimit(len(inspect.stack(0)) + 100 if i // 8 % 2 else kept)
        try:
            y = model(data(i))
        finally:
            sys.setrecursionlimit(kept)
        run.see(y)


@case("which handler a signal has is read by the call")
def handler_of_a_signal(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return plain(self, x) * (2 if signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN else 1)

    kept = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    for new in (signal.SIG_IGN, signal.SIG_DFL):
        changed_at(run, lambda: made(forward), lambda _: signal.signal(signal.SIGUSR1, new), phases=(7,))
    signal.signal(signal.SIGUSR1, kept)


@case("what was written to a replaced sys.stdout is read by the call")
def text_of_standard_output(run: Run) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        changed_at(run, lambda: made(lambda self, x: plain(self, x) + len(sys.stdout.getvalue())), lambda _: print(1))


@case("torch.from_file maps a file that the program changes between calls")
def file_mapped_by_torch(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return plain(self, x) + torch.from_file(self.path, False, 64, dtype=torch.float32, device="cpu").to(x.device)

    with tempfile.TemporaryDirectory() as folder:
        path, numbers = os.path.join(folder, "table"), itertools.count(1)

        def write(_: Any) -> None:
            with open(path, "r+b" if os.path.exists(path) else "wb") as file:  # never shorter: it may be mapped
                file.write(array("f", [float(next(numbers))] * 64).tobytes())

        write(None)
        changed_at(run, lambda: made(forward, path=path), write)


SEEN_SCALE = 1.0


def uses_settings() -> float:
    return SEEN_SCALE


@case("inspect.getclosurevars finds a global of another function for the call")
def found_by_inspect(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return plain(self, x) * inspect.getclosurevars(self.helper).globals["SEEN_SCALE"]

    def more(_: Any) -> None:
        global SEEN_SCALE
        SEEN_SCALE += 1

    changed_at(run, lambda: made(forward, helper=uses_settings), more)


@case("a logger finds the name of the call's caller, of which there are two")
def found_by_a_logger(run: Run) -> None:
    def ask(i: int) -> Any:
        return model(data(i))

    model = made(lambda self, x: plain(self, x) * len(LOG.findCaller(stacklevel=4)[2]))
    for i in range(3 * CALLS):
        run.see(model(data(i)) if i % 13 > 7 else ask(i))


def picked_first(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def picked_later(x: torch.Tensor) -> torch.Tensor:
    return x - 1


picked = picked_first


@case("pickle.loads finds a function by its name; the name gets another one")
def function_found_by_pickle(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return pickle.loads(self.blob)(plain(self, x))

    def rebind(_: Any) -> None:
        global picked
        picked = picked_later if picked is picked_first else picked_first

    changed_at(run, lambda: made(forward, blob=b"c" + __name__.encode() + b"\npicked\n."), rebind)


@case("state_dict() inside of forward: a buffer becomes persistent or not, and hooks of it come")
def state_dict_inside(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return plain(self, x) + sum(value.mean() * len(name) for name, value in self.state_dict().items())

    def make() -> Any:
        model = made(forward)
        model.register_buffer("table", torch.full((64,), 2.0, device=bed.device()))
        return model

    def drop(module: Any, state: Any, *_: Any) -> None:
        state.pop("table", None)

    changed_at(run, make, lambda m: m._non_persistent_buffers_set.symmetric_difference_update({"table"}))
    changed_by(run, make, lambda m: m.register_buffer("table", m.table, persistent=False))
    changed_by(run, make, lambda m: m.register_state_dict_post_hook(drop))


@case("load_state_dict() inside of forward copies one part into another; hooks of it come")
def load_state_dict_inside(run: Run) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.target.load_state_dict(self.first.state_dict())
        return plain(self, x) + self.target(x)[:, :64]

    def negate(module: Any, state: Any, prefix: str, *_: Any) -> None:
        state[prefix + "bias"] = -state[prefix + "bias"]

    def halve(module: Any, keys: Any) -> None:
        module.weight.mul_(0.5)

    changed_by(
        run,
        lambda: made(forward, target=nn.Linear(64, 128).to(bed.device())),
        lambda m: m.target.register_load_state_dict_post_hook(halve),
        lambda m: m.target.register_load_state_dict_pre_hook(negate),
    )


FACTORS: list[float] = []
CONFIG: dict = {"a": {"b": [1.0]}}


class Scaled(contextlib.ContextDecorator):
    def __init__(self, config: dict) -> None:
        self.config = config

    def __enter__(self) -> None:
        FACTORS.append(self.config["a"]["b"][0] + len(self.config["a"]["b"]))

    def __exit__(self, *_: Any) -> None:
        FACTORS.pop()


@Scaled(CONFIG)
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * FACTORS[-1]


@case("a function of the program, decorated by its ContextDecorator with deep settings, which are changed in place")
def decorated_with_settings(run: Run) -> None:
    changed_at(run, lambda: made(lambda self, x: scaled(plain(self, x))), lambda _: CONFIG["a"]["b"].insert(0, 3.0))
