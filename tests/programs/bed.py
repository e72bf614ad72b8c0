"""The bed of all programs: how a case is declared, how it runs, and what is kept of it. Simulated PyTorch, PyTorch on the
simulated driver, and PyTorch on a GPU use this one (README.md).

A case is a function of a Run. It runs plain and under Grape, and everything that it saw must be equal (compare.py). A case
may also be a generator, whose values are seen, or a function without parameters that calls see().
"""
import contextlib
import dataclasses
import gc
import inspect
import os
import random
import sys
import time
import traceback
import warnings

import seen
import torch
from seen import SIMULATED, bytes_of, digest  # noqa: F401  the cases' as well

HERE = os.path.dirname(os.path.abspath(__file__))
# What lies there counts as an installed package.
sys.path.append(os.path.join(HERE, "simulated", "site-packages"))
CASES = {}
DEVICE = "cuda"
NOTICES = "(?:grape: [^\\n]* Python 3.11 inlines direct calls [^\\n]*\\n)*"  # for each function that is a region


class Skip(Exception):
    """Raised by a case that cannot run here."""


@dataclasses.dataclass
class Case:
    body: object
    file: str = ""  # where it stands: "host" of cases_host.py
    # A letter for each call of a model: e, all operators ran; r, none did (a replay); p, some did (children were replayed);
    # x, it raised. A regular expression. Only the simulated PyTorch counts operators.
    pattern: str = ""
    reason: object = None  # what the report says of one of its regions
    refusals: tuple = ()  # their ids (compressor/refusal/refusals.def), and there may be others
    environment: dict = dataclasses.field(default_factory=dict)
    least_python: tuple = (3, 10)
    alone: bool = False  # in a process of its own, also plain
    stderr: str = ""  # what Grape may say, a regular expression
    stderr_at_end: str = None  # the same, after the case; None: as in the case
    validated: bool = True  # also with each replay checked, which takes more memory
    risk: str = ""  # what could go wrong, in words
    mode: str = "no_grad"  # or "inference", "grad"
    late: bool = False  # may end the process, or leave it in another state: after all others
    gpu_only: str = ""  # why the simulated driver cannot run it at all
    group: str = ""  # cases that run only where their group is asked for
    least: dict = None  # how many calls must be replayed, by the class of the region


def declare(name, body, **options):
    if name in CASES:
        raise ValueError(f"two cases are called {name}")
    file = options.pop("file", None) or body.__module__.replace("cases_", "")
    if file.startswith("function"):
        options["stderr"] = NOTICES + options.get("stderr", "")
    CASES[name] = Case(body, file, **options)


def case(pattern="", **options):
    def add(body):
        declare(body.__name__, body, pattern=pattern, **options)
        return body

    return add


class Run:
    """Calls models, and keeps what the program could see of it."""

    def __init__(self, name=""):
        self.name = name
        self.calls = []  # operators run in each call of a model; None: it raised
        self.seen = []  # a label, a digest of the values, one of the random states, and words for people
        self.pending = []

    def __call__(self, model, *args, **kwargs):
        before = operators_run()
        result = None
        try:
            result = model(*args, **kwargs)
        except Exception as error:
            self.calls.append(None)
            self.see(f"{type(error).__name__}: {error}")
        else:
            self.calls.append(operators_run() - before)
            self.see(result)
        return result

    def see(self, *values, label=""):
        """What the program observes now: waits for the device."""
        words = " ; ".join(map(seen.brief, values))[:160]
        self.seen.append([label, digest(*values), seen.random_states(DEVICE), words])

    def later(self, *values, label=""):
        """Copied on the device now, looked at in the end: no wait in between."""
        copies = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in values]
        self.pending.append((label, copies))

    def flush(self):
        for label, values in self.pending:
            self.see(*values, label=label)
        self.pending.clear()

    def attempt(self, function, *arguments, **keywords):
        """Sees the result, or what was raised."""
        try:
            result = function(*arguments, **keywords)
        except Exception as error:  # noqa: BLE001
            self.see("raised", type(error).__name__, str(error).split("\n")[0][:200])
            return None
        self.see("returned", result)
        return result

    # A few things of torch.cuda that the CPU has not, for a look at the case's logic there.
    @property
    def cuda(self):
        return DEVICE == "cuda"

    def need_cuda(self, why="needs a GPU"):
        if not self.cuda:
            raise Skip(why)

    def stream(self):
        return torch.cuda.Stream() if self.cuda else FakeStream()

    def on(self, stream):
        return torch.cuda.stream(stream) if self.cuda else contextlib.nullcontext()

    def current(self):
        return torch.cuda.current_stream() if self.cuda else FakeStream()

    def event(self):
        return torch.cuda.Event() if self.cuda else FakeStream()

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def empty_cache(self):
        if self.cuda:
            torch.cuda.empty_cache()

    def autocast(self, dtype=None, **more):
        return torch.autocast(DEVICE, dtype=dtype or torch.bfloat16, **more)

    def seed(self, number):
        torch.manual_seed(number)


class FakeStream:
    def __getattr__(self, name):
        return lambda *_, **__: None


def device():
    return DEVICE


def operators_run():
    """So far. The real PyTorch does not tell."""
    return torch._C._operators_run() if SIMULATED else 0


RUN = Run()  # that of the case that runs


def see(*values, label=""):
    RUN.see(*values, label=label)


@contextlib.contextmanager
def restored():
    """Switches of PyTorch, and the environment, as they were."""
    backends = torch.backends
    kept = [
        (backends.cuda.matmul, "allow_tf32"),
        (backends.cudnn, "allow_tf32"),
        (backends.cudnn, "enabled"),
        (backends.cudnn, "benchmark"),
        (backends.cudnn, "deterministic"),
        (backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
        (backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    ]
    values = [getattr(holder, name) for holder, name in kept]
    environment = dict(os.environ)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.use_deterministic_algorithms(False)
        for (holder, name), value in zip(kept, values):
            with contextlib.suppress(Exception):
                setattr(holder, name, value)
        for switch in ("flash", "mem_efficient", "math", "cudnn"):
            getattr(backends.cuda, f"enable_{switch}_sdp")(True)
        torch.set_grad_enabled(True)
        os.environ.clear()
        os.environ.update(environment)


def seed_all(number):
    """All sources of random numbers that `seen.random_states` looks at."""
    torch.manual_seed(number)
    if not SIMULATED:
        import numpy

        random.seed(number)
        numpy.random.seed(number)


@contextlib.contextmanager
def surroundings(case):
    """Each case of PyTorch's begins as in a new process; those of the simulated one set all that they need."""
    if SIMULATED:
        with torch.no_grad():
            yield
        return
    seed_all(0)
    modes = {"no_grad": torch.no_grad, "inference": torch.inference_mode, "grad": contextlib.nullcontext}
    with warnings.catch_warnings(), restored(), modes[case.mode]():
        warnings.simplefilter("ignore")
        if case.gpu_only and DEVICE == "cuda" and "simulated" in torch.cuda.get_device_name().lower():
            raise Skip(case.gpu_only)
        yield


def call_body(case, run):
    if inspect.isgeneratorfunction(case.body):
        for value in case.body():
            run.see(value)
    elif inspect.signature(case.body).parameters:
        case.body(run)
    else:
        case.body()


def run_case(name):
    """What is written down of it: its name, what it saw, how it ended."""
    global RUN
    case, run, error, skipped = CASES[name], Run(name), "", ""
    RUN, begin = run, time.monotonic()
    try:
        with surroundings(case):
            call_body(case, run)
            # What a case has under way on streams of its own uses memory that the next one gets.
            with contextlib.suppress(RuntimeError) if SIMULATED else contextlib.nullcontext():
                run.synchronize()
            run.flush()
    except Skip as skip:
        skipped = str(skip)
    except BaseException as problem:  # noqa: BLE001
        if SIMULATED or isinstance(problem, KeyboardInterrupt) and not run.seen:
            raise
        error = f"{type(problem).__name__}: {problem}"[:600]
        traceback.print_exc()
        with contextlib.suppress(Exception):
            run.flush()
    # What a case leaves in cycles (a debugger's streams) is not to be closed by the collector in another's call.
    gc.collect()
    seconds = round(time.monotonic() - begin, 3)
    return dict(name=name, calls=run.calls, seen=run.seen, error=error, skipped=skipped, seconds=seconds, risk=case.risk)
