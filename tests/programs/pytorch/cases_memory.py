"""Memory and autograd's view of it; work on other streams that is still under way."""

import ctypes
import gc
from typing import Any, Callable

import bed
import small
from small import CALLS, Net, Run, case, data, net, nn, torch

TOTAL: list = []
TRACED: Any = None


def sleep(run: Run, cycles: int = 8_000_000) -> None:
    """Some 4 ms of work of the current stream: what comes behind it runs long after the host went on."""
    if run.cuda:
        torch.cuda._sleep(cycles)


def junk(count: int = 24, *shape: int) -> list:
    return [torch.full(shape or (4, 64), 1e3 + i, device=bed.device()) for i in range(count)]


def ones(value: float = 1.0) -> torch.Tensor:
    return torch.full((64,), value, device=bed.device(), requires_grad=True)


class Made(Net):
    """`how(module, ...)` is its forward."""

    side: Any = None

    def __init__(self, how: Callable[..., Any]) -> None:
        super().__init__()
        self.how = how
        self.register_buffer("table", torch.arange(256.0).view(4, 64))
        self.register_buffer("total", torch.zeros(64))

    def net(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)

    def forward(self, *arguments: Any) -> Any:
        return self.how(self, *arguments)


def made(how: Callable[..., Any], seed: int = 1) -> Any:
    return net(Made, how, seed=seed)


def viewing(m: Any, x: torch.Tensor) -> Any:
    return m.net(x), x[:2], m.table[1:3]


@case("in inference mode a view of an ordinary input or buffer is ordinary, and autograd may save it", mode="grad")
def ordinary_views_in_inference_mode(run: Run) -> None:
    model = made(viewing).requires_grad_(False)
    for i in range(CALLS):
        x, w = data(i), ones()
        with torch.inference_mode():
            y, part, row = model(x)
        run.see(y, part, row, [t.is_inference() for t in (y, part, row)])
        run.attempt(lambda: (part * w).sum().backward())
        run.attempt(lambda: (row * w).sum().backward())
        run.see(w.grad)


@case("out of inference mode a view of an inference tensor is one, too: to write to it raises")
def inference_views_outside(run: Run) -> None:
    model = made(viewing)
    for i in range(CALLS):
        with torch.inference_mode(i % 7 < 5):
            x = data(i).clone()
        y, part, row = model(x)
        run.see(y, part, row, [t.is_inference() for t in (x, y, part, row)])
        run.attempt(part.add_, 1.0)
        run.see(x)


@case("a frozen call in grad mode returns a view of its input: written to with gradients, both have", mode="grad")
def input_gets_a_gradient_through_its_view(run: Run) -> None:
    model = made(viewing).requires_grad_(False)
    for i in range(CALLS):
        x, w = data(i), ones(2.0)
        y, part, _ = model(x)
        run.attempt(part.mul_, w)
        run.see(y, x, x.requires_grad, x.is_leaf)
        run.attempt(lambda: (x * x).sum().backward())
        run.see(w.grad)


@case("two results of a frozen call in grad mode share memory: if one is written to with gradients", mode="grad")
def results_get_gradients_from_each_other(run: Run) -> None:
    def splitting(m: Any, x: torch.Tensor) -> Any:
        y = m.net(x)
        return y, y[:2], y.view(-1)

    model = made(splitting).requires_grad_(False)
    for i in range(CALLS):
        w = ones(0.5)
        y, part, flat = model(data(i))
        run.attempt(part.mul_, w)
        run.see(y, part.requires_grad, flat.requires_grad)
        run.attempt(lambda: flat.square().sum().backward())
        run.see(w.grad)


@case("returns x.data, which has a version of its own, and x.detach(), which has not: only one write is noticed")
def versions_of_data_and_detach(run: Run) -> None:
    for how in (lambda m, x: (m.net(x), x.data[1:]), lambda m, x: (m.net(x), x.detach()[1:])):
        model = made(how)
        for i in range(CALLS):
            x, w = data(i).add_(1), ones()
            with torch.enable_grad():
                loss = (x * w).sum()
            y, part = model(x)
            part.mul_(3)
            run.see(y, part, x)
            run.attempt(loss.backward)
            run.see(w.grad)


@case("results of stride 0, of overlapping windows, of a storage just as long as the windows reach, of 7 dimensions")
def results_of_odd_strides(run: Run) -> None:
    kinds: list = [
        lambda y, x: (y.as_strided((4, 4), (1, 1)), y[:1].expand(5, 4, 64)[:, ::2]),
        lambda y, x: (y[0, :7].clone().as_strided((4, 4), (1, 1)), y.sum().expand(3, 3), y.unfold(1, 8, 4)),
        lambda y, x: (y.view(1, 4, 1, 2, 4, 1, 8).permute(6, 5, 4, 3, 2, 1, 0), x.view(2, 2, 1, 2, 2, 16).mT),
        lambda y, x: (y.as_strided((4, 4), (0, 2), 3), y.new_zeros(15).as_strided((3, 1, 5), (5, 77, 1)), y[4:]),
    ]
    model = made(lambda m, x, kind: kind(m.net(x), x))
    for kind in kinds:
        for i in range(CALLS):
            run.see(model(data(i), kind))


@case("scales its argument, reads a value, scales it back: when the value is another one, that must not be done twice")
def undone_before_the_end(run: Run) -> None:
    def undoing(m: Any, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2.0)
        m.total.add_(1)
        y = torch.tanh(m.net(x)) if (x.abs().max() > 100).item() else m.net(x)
        x.mul_(0.5)
        m.total.sub_(1)
        return y + m.total

    model = made(undoing)
    for i in range(2 * CALLS):
        x = data(i)
        if i in (8, 11, 20):
            x[0, 0] = 200.0
        run.see(model(x), x, model.total)


@case("adds what is 0 for a while, then reads a value: later it is not 0, and the value another one: added once only")
def adds_nothing_at_first(run: Run) -> None:
    def adding(m: Any, x: torch.Tensor, by: torch.Tensor, total: torch.Tensor, kind: int) -> torch.Tensor:
        total = (m.total, total, TOTAL[0])[kind]
        total.add_(by)
        y = m.net(x)
        return (y * 0.5 if (x.abs().max() > 50).item() else y) + total

    for kind in range(3):
        model, total = made(adding), torch.zeros(64, device=bed.device())
        TOTAL[:] = [total.clone()]
        for i in range(2 * CALLS):
            x, by = data(i), torch.full((64,), float(max(0, i - 8)), device=bed.device())
            if i in (10, 13, 20):
                x[0, 0] = 100.0
            run.see(model(x, by, total, kind), model.total, total, TOTAL, label=f"kind {kind} call {i}")


def used_and_freed_on_the_side(run: Run, model: Any, side: Any, joined: bool) -> None:
    model.side = small.numbers_of(side)
    for i in range(2 * CALLS):
        x = data(i)
        y = model(x)
        if not joined:
            side.wait_stream(run.current())
        with run.on(side):
            sleep(run)
            z = y * 3
        del y
        kept = junk()
        run.current().wait_stream(side)
        run.see(z, kept)


@case("the result was made on a side stream: freed while that stream still reads it, it must be that stream's memory")
def result_of_a_side_stream(run: Run) -> None:
    def forked(m: Any, x: torch.Tensor) -> torch.Tensor:
        side = small.stream_of(m.side)
        side.wait_stream(small.current_stream())
        with small.on_stream(side):
            y = m.net(x) * 2
        small.current_stream().wait_stream(side)
        return y

    used_and_freed_on_the_side(run, made(forked), run.stream(), True)


@case("the call records its result on a side stream, where the caller uses it, and frees it before that is done")
def result_recorded_in_the_call(run: Run) -> None:
    def recording(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = m.net(x)
        if x.is_cuda:
            y.record_stream(small.stream_of(m.side))
        return y

    used_and_freed_on_the_side(run, made(recording), run.stream(), False)


@case("the call tells the allocator that the current stream uses its argument (record_stream), which is freed at once")
def argument_recorded_in_the_call(run: Run) -> None:
    def recording(m: Any, x: torch.Tensor) -> torch.Tensor:
        if x.is_cuda:
            x.record_stream(torch.cuda.current_stream())
        return m.net(x)

    side, model = run.stream(), made(recording)
    values = [data(i) for i in range(2 * CALLS)]
    run.synchronize()
    for value in values:
        with run.on(side):
            x = value.clone()
        run.current().wait_stream(side)
        sleep(run)
        y = model(x)
        del x
        with run.on(side):
            kept = junk()
        run.see(y)
        run.synchronize()
        run.see(kept)


@case("a side stream fills a buffer of the module, or the other half of the argument's, that the call does not read")
def filled_on_the_side(run: Run) -> None:
    side, n = run.stream(), 1 << (24 if run.cuda else 9)
    model, both = net(), torch.zeros(2, n, device=bed.device())
    model.register_buffer("spare", torch.zeros(n, device=bed.device()))
    for i in range(24):
        half, where = i % 2, both[1 - i % 2] if i >= 12 else model.spare
        if i == 12:
            model = net()
        x = both[half, :256].view(4, 64).copy_(data(i)) if i >= 12 else data(i)
        where.zero_()
        side.wait_stream(run.current())
        with run.on(side):
            sleep(run, 4_000_000)
            for _ in range(400):
                where.add_(1)
        run.later(model(x), model(x))
        run.current().wait_stream(side)
        run.see(where.min(), where.max(), x)


@case("the call itself waits for what its caller left on a side stream, and has that stream wait for its own work")
def waits_inside(run: Run) -> None:
    def waiting(m: Any, x: torch.Tensor) -> torch.Tensor:
        small.current_stream().wait_stream(small.stream_of(m.side))
        y = m.net(x)
        small.stream_of(m.side).wait_stream(small.current_stream())
        return y

    side, model, x, z = run.stream(), made(waiting), data(0), data(1)
    model.side = small.numbers_of(side)
    values = [data(i) for i in range(2 * CALLS)]
    run.synchronize()
    for value in values:
        with run.on(side):
            sleep(run)
            x.copy_(value)
        y = model(x)
        with run.on(side):
            z.copy_(y).mul_(2)
        run.current().wait_stream(side)
        run.later(y, z)


@case("a stream of the classic kind, that waits for the default one and is waited for without any event")
def classic_stream(run: Run) -> None:
    run.need_cuda("streams of the runtime")
    handle, runtime = ctypes.c_void_p(), torch.cuda.cudart()
    runtime.cudaStreamCreate(ctypes.addressof(handle))
    side, model, x, z = torch.cuda.ExternalStream(handle.value), net(), data(0), data(1)
    values = [data(i) for i in range(2 * CALLS)]
    torch.cuda.synchronize()
    for value in values:
        with torch.cuda.stream(side):
            sleep(run)
            x.copy_(value)
        y = model(x)
        with torch.cuda.stream(side):
            z.copy_(y).add_(1)
        side.synchronize()
        run.see(z)
    torch.cuda.synchronize()
    runtime.cudaStreamDestroy(handle.value)


@case("many calls wait behind slow work, on three streams in turn, each with inputs elsewhere; the host is far ahead")
def calls_under_way(run: Run) -> None:
    model, streams = net(), [run.stream() for _ in range(3)]
    inputs = [data(i) for i in range(24)]
    for round_ in range(7):
        run.synchronize()
        for stream in streams:
            with run.on(stream):
                sleep(run)
        results = []
        for i, x in enumerate(inputs):
            with run.on(streams[i % 3 if round_ < 5 else i * i % 3]):
                results.append(model(x))
        run.synchronize()
        run.see(results)
        inputs = [torch.tanh(y) * 2 for y in results]


@case("a model dies, or gets other weights, while its last call still waits on the device; its memory goes to others")
def dies_under_way(run: Run) -> None:
    inputs = [data(i) for i in range(9)]
    for round_ in range(6):
        model = net(seed=round_)
        for x in inputs[:7]:
            run.later(model(x))
        run.synchronize()
        sleep(run)
        y, z = model(inputs[7]), model(inputs[8])
        if round_ % 2:
            model.second.weight = nn.Parameter(model.second.weight * 1.5)
            y = y + model(y)
        del model
        gc.collect()
        kept = junk(8, 128, 128) + junk(40)
        run.see(y, z, kept[0], kept[-1])


@case("the program captures calls of the model that were replayed before, on results of replays, and goes on with both")
def captured_after_replays(run: Run) -> None:
    run.need_cuda("CUDA graphs")
    model, still = net(), data(0)
    for i in range(8):
        fed = model(data(i))
    pool, graphs = None, []
    for i in range(2 * CALLS):
        if i in (0, 12):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                out = model(still) + model(fed)
            pool = graph.pool()
            graphs.append((graph, out))
        still.copy_(data(i))
        if i == 5:
            model.third.bias.add_(0.5)
        if i % 4 == 2:
            fed.copy_(model(still))
        for graph, out in graphs:
            graph.replay()
            run.see(out.clone(), label=f"graph at {i}")
        run.see(model(data(i)), model(still), model(out))
