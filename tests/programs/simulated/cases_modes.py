"""PyTorch's modes, debuggers and profilers."""
import io
import pdb
import sys
import threading

import torch
from bed import case
from tiny import Net, data, net, replay_inside


class modes:
    """Calls alternate: with the mode for `inside`, without for the rest."""

    def __init__(self, run, mode, inside, calls=18, kind=Net):
        model = net(kind)
        for i in range(calls):
            if i in inside:
                with mode():
                    run(model, data(i))
            else:
                run(model, data(i))


@case("eer{4}e{3}r{9}")
def gradients_needed(run):
    modes(run, torch.enable_grad, range(6, 9))


@case("e{6}")
def gradients_always_needed(run):
    modes(run, torch.enable_grad, range(6), calls=6)


# Training, and an evaluation now and then: the calls under autograd do not keep the others from being replayed.
@case("e{8}eer{4}e{8}r{6}", reason="requires grad")
def trained_and_evaluated(run):
    model = net()
    for i in range(28):
        with torch.set_grad_enabled(i % 14 < 8):
            run(model, data(i))


# A part that is not trained, inside of one that is.
class Frozen(Net):
    def __init__(self):
        super().__init__()
        self.backbone = Net()

    def forward(self, x):
        with torch.no_grad():
            y = self.backbone(x)
        return super().forward(y)


@case("[ep]*p[ep]*")
def a_frozen_part(run):
    model = net(Frozen)
    with torch.enable_grad():
        replay_inside(lambda: model(data()))
        for i in range(12):
            run(model, data(i))


@case("eer{4}eer{4}r{6}")
def inference_mode(run):
    modes(run, torch.inference_mode, range(6, 12))


@case("eer{4}eer{4}r{6}")
def autocast(run):
    modes(run, lambda: torch.autocast("cuda"), range(6, 12))


class tf32:
    def __enter__(self):
        torch._C._set_cublas_allow_tf32(True)

    def __exit__(self, *_):
        torch._C._set_cublas_allow_tf32(False)


@case("eer{4}eer{4}r{6}")
def tf32_allowed(run):
    modes(run, tf32, range(6, 12))


@case("eer{4}eer{4}r{6}")
def another_stream(run):
    side = torch.cuda.Stream()
    modes(run, lambda: torch.cuda.stream(side), range(6, 12))


# The current stream is read without a call of Python's functions, once both have told the same.
@case("eer{6}")
def stream_asked_directly(run):
    model = net()
    for i in range(8):
        if i == 2:
            asked = torch._C._cuda_rawStreamsAsked()
        run(model, data(i))
    run.see(torch._C._cuda_rawStreamsAsked() - asked)


class Changing(Net):
    def forward(self, x):
        torch._C._set_cublas_allow_tf32(self.flag)
        return super().forward(x)


@case("[ep]{8}")
def switch_set_by_the_call(run):
    model = net(Changing)
    for i in range(8):
        torch._C._set_cublas_allow_tf32(False)
        model.flag = True
        run(model, data(i))
        run.see(torch._C._get_cublas_allow_tf32())
    torch._C._set_cublas_allow_tf32(False)


@case("[ep]{8}")
def grad_mode_left_on(run):
    class Leaving(Net):
        def forward(self, x):
            y = super().forward(x)
            torch._C._set_grad_enabled(True)
            return y

    model = net(Leaving)
    for i in range(8):
        run(model, data(i))
        run.see(torch.is_grad_enabled())
        torch._C._set_grad_enabled(False)


# Grad mode switched inside and put back: as before for whoever looks.
@case("eer{6}")
def mode_inside_of_the_call(run):
    class Inside(Net):
        def forward(self, x):
            with torch.inference_mode():
                y = self.first(x)
            return self.second(y.clone())

    model = net(Inside)
    for i in range(8):
        run(model, data(i))


class watching:
    """All operators of the thread are told to a list."""

    def __init__(self, kind, seen):
        self.kind, self.seen = kind, seen

    def __enter__(self):
        torch._C._watch_operators(self.kind, self.seen.append)

    def __exit__(self, *_):
        torch._C._watch_operators(self.kind, None)


def watched(run, kind):
    seen = []
    modes(run, lambda: watching(kind, seen), range(6, 10), calls=14)
    run.see(seen)


@case("eer{4}e{4}r{4}", reason="TorchDispatchMode")
def dispatch_mode(run):
    watched(run, "dispatch")


@case("eer{4}e{4}r{4}", reason="TorchFunctionMode")
def function_mode(run):
    watched(run, "function")


@case("eer{4}e{4}r{4}", reason="profiler")
def profiler(run):
    watched(run, "profiler")


@case("eer{4}e{4}r{4}", reason="transform")
def functorch(run):
    watched(run, "functorch")


@case("eer{4}[ep]{4}r{4}", reason="sys.settrace")
def tracer(run):
    lines = []

    def trace(frame, event, _):
        if frame.f_code.co_name == "forward":
            lines.append((frame.f_code.co_name, event, frame.f_lineno))
        return trace

    class tracing:
        def __enter__(self):
            sys.settrace(trace)

        def __exit__(self, *_):
            sys.settrace(None)

    modes(run, tracing, range(6, 10), calls=14)
    run.see(lines)


@case("eer{4}[ep]{4}r{4}")
def python_profiler(run):
    events = []

    def profile(frame, event, _):
        if frame.f_code.co_name == "forward":
            events.append(event)

    class profiling:
        def __enter__(self):
            sys.setprofile(profile)

        def __exit__(self, *_):
            sys.setprofile(None)

    modes(run, profiling, range(6, 10), calls=14)
    run.see(events)


@case("eer{4}[ep]{4}r{4}", least_python=(3, 12))
def monitoring(run):
    events = []

    class monitored:
        def __enter__(self):
            sys.monitoring.use_tool_id(sys.monitoring.PROFILER_ID, "test")
            sys.monitoring.register_callback(
                sys.monitoring.PROFILER_ID,
                sys.monitoring.events.PY_START,
                lambda code, _: code.co_name == "forward" and events.append(code.co_name),
            )
            sys.monitoring.set_events(sys.monitoring.PROFILER_ID, sys.monitoring.events.PY_START)

        def __exit__(self, *_):
            sys.monitoring.set_events(sys.monitoring.PROFILER_ID, 0)
            sys.monitoring.free_tool_id(sys.monitoring.PROFILER_ID)

    modes(run, monitored, range(6, 10), calls=14)
    run.see(events)


@case("[ep]{8}")
def breakpoint_hook(run):
    hits = []
    sys.breakpointhook = lambda: hits.append(1)

    class Breaking(Net):
        def forward(self, x):
            breakpoint()
            return super().forward(x)

    model = net(Breaking)
    for i in range(8):
        run(model, data(i))
    sys.breakpointhook = sys.__breakpointhook__
    run.see(len(hits))


# Only what was asked of the debugger is compared: Python 3.13 stops a line later under another frame evaluation.
@case("[ep]{6}")
def breakpoint_in_the_code(run):
    talk = io.StringIO()

    class Breaking(Net):
        def forward(self, x):
            pdb.Pdb(stdin=io.StringIO("p x.shape\nc\n"), stdout=talk, nosigint=True, readrc=False).set_trace()
            return super().forward(x)

    model = net(Breaking)
    for i in range(6):
        run(model, data(i))
        sys.settrace(None)
    run.see(talk.getvalue().count("(3, 8)"))


# A breakpoint that a debugger has set in a proven model: its tracer is there in each call.
@case("eer{4}[ep]{4}")
def breakpoint_set_later(run):
    hits = []

    class Debugger(pdb.Pdb):
        def user_line(self, frame):
            if frame.f_code.co_name == "forward":
                hits.append(frame.f_lineno)
            self.set_continue()

    model = net()
    for i in range(6):
        run(model, data(i))
    for i in range(4):
        debugger = Debugger(stdin=io.StringIO(), stdout=io.StringIO(), nosigint=True, readrc=False)
        debugger.set_break(Net.forward.__code__.co_filename, Net.forward.__code__.co_firstlineno + 1)
        debugger.runcall(run, model, data(i))
        debugger.clear_all_breaks()
    run.see(hits)


@case("[ep]{8}")
def thread_tracers(run):
    threading.settrace(lambda *_: None)
    model = net()
    for i in range(8):
        run(model, data(i))
    threading.settrace(None)
