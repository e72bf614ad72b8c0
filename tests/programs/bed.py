"""What the cases share: how they are declared, and what they see of each call.

A case is a function of a Run. The test runs it plain and under Grape and compares everything that it saw. Its pattern
has a letter for each call of a model: e, all operators ran; r, none did (a replay); p, some did (children were
replayed); x, it raised. A pattern is a regular expression.
"""
import contextlib
import dataclasses
import gc
import hashlib
import io
import os
import sys
import time

import torch
from torch import nn

# What lies there counts as an installed package.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "simulated", "site-packages"))
CASES = {}
NOTICES = "(?:grape: [^\\n]* Python 3.11 inlines direct calls [^\\n]*\\n)*"  # for each function that is a region


@dataclasses.dataclass
class Case:
    body: object
    pattern: str
    reason: str = None  # what the report says of one of its regions
    environment: dict = dataclasses.field(default_factory=dict)
    least_python: tuple = (3, 9)
    alone: bool = False  # in a process of its own, also plain
    stderr: str = ""  # what Grape may say, a regular expression
    stderr_at_end: str = None  # the same, after the case; None: as in the case
    validated: bool = True  # also with each replay checked, which takes more memory
    file: str = ""  # where it stands: "host" of cases_host.py


def case(pattern, **options):
    def declare(body):
        if body.__name__ in CASES:
            raise ValueError(f"two cases are called {body.__name__}")
        file = body.__module__.replace("cases_", "")
        if file.startswith("function"):
            options["stderr"] = NOTICES + options.get("stderr", "")
        CASES[body.__name__] = Case(body, pattern, file=file, **options)
        return body

    return declare


class Run:
    """Calls models, and keeps what the program could see of it."""

    def __init__(self):
        self.calls = []  # operators run in each call; None: it raised
        self.seen = []

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

    def see(self, *values):
        self.seen.append(" ".join(digest(value) for value in values))


def operators_run():
    """So far. The real PyTorch, with which random_programs run on a GPU, does not tell."""
    return torch._C._operators_run() if hasattr(torch._C, "_operators_run") else 0


def bytes_of(tensor):
    if hasattr(tensor, "tobytes"):
        return tensor.tobytes()
    return tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def digest(value):
    if isinstance(value, torch.Tensor):
        facts = (str(value.dtype), tuple(value.shape), value.stride(), value.requires_grad, value.is_inference())
        facts += (None if value.is_inference() else value._version,)
        content = hashlib.sha256(bytes_of(value.detach())).hexdigest()[:16]
        return f"{type(value).__name__}{facts}{content}".replace(" ", "")
    if isinstance(value, (list, tuple)):
        return type(value).__name__ + "(" + ",".join(digest(part) for part in value) + ")"
    if isinstance(value, dict):
        return type(value).__name__ + "{" + ",".join(f"{digest(k)}:{digest(v)}" for k, v in value.items()) + "}"
    if dataclasses.is_dataclass(value):
        return type(value).__name__ + digest({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, nn.Module):
        return type(value).__name__
    return repr(value).replace(" ", "_")


class Net(nn.Module):
    """Two layers; what most cases start from."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)
        self.flag, self.count, self.scale = False, 0, 1.0

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def replay_inside(call):
    """Under Grape: calls until a part of one is replayed. When that is, depends on the time that looking at inner modules may
    take, a share of all time; on a busy machine it is late. With GRAPE_VALIDATE all operators run each time: then for a while.
    What it prints is nobody's."""

    def operators():
        before = operators_run()
        with contextlib.redirect_stdout(io.StringIO()):
            call()
        return operators_run() - before

    if "LD_PRELOAD" not in os.environ:
        return
    all_of_it, last = operators(), time.monotonic() + (1 if "GRAPE_VALIDATE" in os.environ else 60)
    while time.monotonic() < last and operators() == all_of_it:
        time.sleep(0.02)


def net(kind=Net):
    torch.manual_seed(1)
    return kind().cuda().eval()


def data(seed=2, rows=3):
    return (torch.rand(rows, 8, generator=torch.Generator().manual_seed(seed)) - 0.5).cuda()


GUARDED, REFUSED = "eer{4}eer{4}", "[ep]{12}"


def reads(pattern, **options):
    """Declares a case of a model that multiplies by what `read(model)` gives. `change(model)` makes that another after six
    calls. The decorated function makes both, and maybe what puts all back."""

    def declare(make):
        def body(run):
            read, change, *back = make()

            class Reading(Net):
                def forward(self, x):
                    return super().forward(x) * float(read(self))

            model = net(Reading)
            try:
                for i in range(12):
                    if i == 6:
                        change(model)
                    run(model, data(i))
            finally:
                for put_back in back:
                    put_back()

        body.__name__, body.__module__ = make.__name__, make.__module__
        return case(pattern, **options)(body)

    return declare


def run_case(name):
    run = Run()
    with torch.no_grad():
        CASES[name].body(run)
    # What a case has under way on streams of its own uses memory that the next one gets.
    with contextlib.suppress(RuntimeError):
        torch.cuda.synchronize()
    # What a case leaves in cycles (a debugger's streams) is not to be closed by the collector in another's call.
    gc.collect()
    return run
