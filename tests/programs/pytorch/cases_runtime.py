"""Around the calls: streams, events, graphs of the program's own, memory, random numbers, switches, modes."""

import contextlib
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import bed
import small
from small import CALLS, Net, Run, case, copy, data, net, nn, torch


@case("side streams inside of forward, kept in the module or made anew, joined by events; results used at once")
def streams_inside(run: Run) -> None:
    class Forked(Net):
        side: Any = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            side = small.stream_of(self.side)
            side.wait_stream(small.current_stream())
            with small.on_stream(side):
                a = torch.tanh(self.first(self.norm(x)))
                a = self.second(a) * 2
            b = super().forward(x)
            small.current_stream().wait_stream(side)
            return b + self.third(a)

    class Late(Forked):
        """Uses what the side stream made a call before: it is joined by the caller only."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            side = small.stream_of(self.side)
            side.wait_stream(small.current_stream())
            with small.on_stream(side):
                x.mul_(0.5)
            return self.first(self.norm(x[:0]))

    streams = [run.stream() for _ in range(3)]
    model, late = net(Forked), net(Late)
    for i in range(48):
        model.side = late.side = small.numbers_of(streams[i // 16])
        run.later(model(data(i)))
    for i in range(CALLS):
        x = data(i)
        late(x)
        run.current().wait_stream(streams[2])
        run.later(x)
    late = None
    del streams
    fresh = run.stream()
    model.side = small.numbers_of(fresh)
    for i in range(CALLS):
        with run.on(fresh):  # the side stream is the current one
            y = model(data(i))
        run.current().wait_stream(fresh)
        run.later(y)
        fresh.wait_stream(run.current())  # which has to read y before that memory comes again


@case("calls on several streams in turn, ordered by events only, with record_stream; outputs read on other streams")
def streams_around(run: Run) -> None:
    model, streams = net(), [run.stream() for _ in range(3)]
    x, ready = data(0), run.event()
    ready.record() if run.cuda else None
    for i in range(60):
        stream = streams[i % 3 if i > 20 else 0]
        with run.on(stream):
            stream.wait_event(ready)
            y = model(x)
            ready = run.event()
            ready.record(stream) if run.cuda else None
            if run.cuda:
                x.record_stream(stream)
            x = torch.tanh(y) + 0.1
        if i % 4 == 3:
            run.current().wait_event(ready)
            run.later(x)
    run.synchronize()
    run.see(x)


@case("a prefetcher: pinned buffers used again, copies on a side stream, the model called as soon as they are ordered")
def prefetched_inputs(run: Run) -> None:
    model, side = net(), run.stream()
    pinned = [torch.empty(4, 64, pin_memory=run.cuda) for _ in range(2)]
    done = [run.event() for _ in range(2)]
    ahead: list[Any] = []
    host = [torch.empty(4, 64, pin_memory=run.cuda) for _ in range(40)]
    for i in range(40):
        slot = i % 2
        if i >= 2:
            done[slot].synchronize()
        pinned[slot].copy_(data(i).cpu())
        with run.on(side):
            x = pinned[slot].to(bed.device(), non_blocking=True)
            done[slot].record(side) if run.cuda else None
        ahead.append(x)
        if len(ahead) > 1:
            x = ahead.pop(0)
            run.current().wait_stream(side)
            if run.cuda:
                x.record_stream(run.current())
            y = model(x)
            host[i].copy_(y, non_blocking=True)
    run.synchronize()
    run.see(host[1:])


@case("a forward that copies to pinned memory without waiting, or from it; the program looks after a wait")
def copies_that_do_not_wait(run: Run) -> None:
    class Telling(Net):
        def __init__(self) -> None:
            super().__init__()
            self.out = [torch.zeros(4, 64)]

        def forward(self, x: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            host.copy_(y, non_blocking=True)
            return y * 2

    class Fed(Net):
        def forward(self, host: torch.Tensor) -> torch.Tensor:
            return super().forward(host.to(bed.device(), non_blocking=True))

    model, fed = net(Telling), net(Fed)
    for i in range(2 * CALLS):
        host = torch.zeros(4, 64, pin_memory=run.cuda)
        y = model(data(i), host)
        run.synchronize()
        run.see(y, host)
        host.fill_(0.1 * (i // 3))
        run.see(fed(host))
    plain = torch.zeros(4, 64)
    for i in range(CALLS):
        run.see(model(data(i), plain), plain, fed(torch.full((4, 64), 0.5)))


@case("graphs of the program's own with dropout between replayed calls; make_graphed_callables; seeds in between")
def graphs_between_calls(run: Run) -> None:
    run.need_cuda("CUDA graphs")
    model = nn.Sequential(net(), nn.Dropout(0.25)).train()
    torch.manual_seed(3)
    x = data(0)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = model(x)
    for i in range(48):
        if i in (12, 30):
            torch.manual_seed(i)
        x.copy_(data(i))
        if i % 5 == 3 or i > 36:
            graph.replay()
        run.see(model(data(i)), captured, torch.rand(3, device="cuda"))
    with torch.enable_grad():
        torch.manual_seed(5)
        trained = net().requires_grad_(True)
        graphed = torch.cuda.make_graphed_callables(copy.deepcopy(trained).train(), (data(0).requires_grad_(),))
    for i in range(24):
        if i == 12:
            graphed.eval()
        run.see(graphed(data(i)), trained(data(i)))


@case("a submodule that was compiled, inside of an eager one, switched on and off", late=True)
def compiled_part(run: Run) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.b = Net(), nn.Linear(64, 64)
            self.compiled: Any = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            part = self.compiled if self.compiled is not None else self.inner
            return torch.tanh(self.b(part(x))) * 2

    model = net(Outer)
    fast = [torch.compile(model.inner, backend="aot_eager")]  # out of the module's parameters
    for i in range(45):
        if i % 12 == 8:
            object.__setattr__(model, "compiled", fast[0])
        if i % 12 == 0:
            object.__setattr__(model, "compiled", None)
        run.see(model(data(i)))
    torch.compiler.reset()
    for i in range(8):
        run.see(model(data(i)))


@case("memory: empty_cache, workspaces cleared and their memory used by the program, pools, a caught lack of memory")
def memory_between_calls(run: Run) -> None:
    model, kept = net(dtype=torch.bfloat16 if run.cuda else torch.float32), []
    dtype = next(model.parameters()).dtype
    for i in range(60):
        run.see(model(data(i, dtype=dtype)), model(data(i, 300, 64, dtype=dtype)))
        if i % 10 == 5 and run.cuda:
            torch._C._cuda_clearCublasWorkspaces()
        if i % 10 == 5:
            kept.append([torch.full((1 << 20,), float(i), device=bed.device()) for _ in range(24 if run.cuda else 1)])
        if i % 10 == 9:
            run.empty_cache()
            run.see([int((part == part[0]).all()) for part in kept[-1]], [part[0] for part in kept[-1]][:2])
            kept[:] = kept[-1:]


@case("no memory in the middle of a forward, caught and tried again with less; the state of the call half done")
def memory_runs_out_inside(run: Run) -> None:
    class Large(Net):
        def forward(self, x: torch.Tensor, rows: int, log: list) -> torch.Tensor:
            y = super().forward(x)
            log.append(rows)
            x.add_(1)
            while True:
                try:
                    return torch.cat([y, torch.ones(rows, 64, device=x.device)]).sum(0)
                except RuntimeError:
                    log.append("less")
                    rows //= 1 << 24

    model = net(Large)
    for i in range(2 * CALLS):
        x, log = data(i), []
        run.see(model(x, 1 << 42 if i % 7 == 4 else 64, log), x, log)


@case("dropout and random fills: seeds, states saved and restored, fork_rng, offsets, other generators, in train mode")
def random_states_of_all_kinds(run: Run) -> None:
    class Random(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.drop, self.drop2 = Net(), nn.Dropout(0.3), nn.AlphaDropout(0.2)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.drop2(self.drop(self.a(x)))
            return y, torch.normal(y, 0.1), torch.multinomial(y.softmax(-1), 3), torch.empty_like(y).exponential_()

    model = net(Random).train()
    generator = torch.Generator(bed.device())
    state = torch.get_rng_state()
    for i in range(72):
        x = data(i)
        if i % 12 == 3:
            run.seed(i)
        if i % 12 == 5 and run.cuda:
            state = torch.cuda.get_rng_state()
        if i % 12 == 8 and run.cuda:
            torch.cuda.set_rng_state(state)
        if i % 12 == 10 and run.cuda:
            torch.cuda.default_generators[0].set_offset(4 * i)
        if i % 12 == 11:
            with torch.random.fork_rng(devices=[0] if run.cuda else []):
                run.seed(77)
                run.see(model(x))
        if i % 9 == 4:
            run.see(torch.rand(5, device=x.device, generator=generator), torch.randn(3, device=x.device))
        if i in (30, 50):
            model.drop.p = 0.6
        if i in (40, 60):
            model.eval() if i == 40 else model.train()
        run.see(model(x))


@case("generators as arguments and in the module; seeds and CPU random numbers drawn in the call")
def generators_in_calls(run: Run) -> None:
    class Drawing(Net):
        def __init__(self) -> None:
            super().__init__()
            self.own: Any = None

        def forward(self, x: torch.Tensor, generator: Any = None, kind: int = 0) -> Any:
            y = super().forward(x)
            if kind == 0:
                return y + torch.randn(y.shape, device=y.device, generator=generator)
            if kind == 1:
                return y + torch.randn(y.shape, device=y.device, generator=self.own)
            if kind == 2:
                return y * torch.rand(()).item()
            if kind == 3:
                with torch.random.fork_rng(devices=small.devices_of_random()):
                    torch.manual_seed(int(x.shape[0]))
                    return y + torch.rand_like(y)
            return y + float(torch.initial_seed() % 7)

    for kind in range(5):
        model = net(Drawing)
        object.__setattr__(model, "own", torch.Generator(bed.device()).manual_seed(4))
        generator = torch.Generator(bed.device()).manual_seed(3)
        for i in range(16):
            if i % 6 == 5:
                generator.manual_seed(i)
                run.seed(i)
            run.see(model(data(i), generator if i % 2 else None, kind), label=f"kind {kind}")


@case("switches of precision and determinism flipped between calls, and by the call itself")
def switches_flipped(run: Run) -> None:
    backends = torch.backends
    model = net(
        lambda: nn.Sequential(
            nn.Conv2d(4, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.Linear(16 * 64, 64)
        )
    )

    def precision(value: str) -> None:
        torch.set_float32_matmul_precision(value)

    flips = [
        lambda: setattr(backends.cuda.matmul, "allow_tf32", True),
        lambda: setattr(backends.cudnn, "allow_tf32", False),
        lambda: precision("medium"),
        lambda: precision("highest"),
        lambda: setattr(backends.cudnn, "enabled", False),
        lambda: setattr(backends.cudnn, "deterministic", True),
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        lambda: setattr(backends.cudnn, "enabled", True),
        lambda: torch.use_deterministic_algorithms(False),
        lambda: setattr(backends.cuda.matmul, "allow_tf32", False),
        lambda: setattr(backends.cudnn, "allow_tf32", True),
    ]
    for flip in [lambda: None, *flips]:
        flip()
        for i in range(7):
            run.see(model(data(i, 3, 4, 12, 12)))

    class Flipping(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            before = backends.cuda.matmul.allow_tf32
            backends.cuda.matmul.allow_tf32 = True
            y = super().forward(x)
            backends.cuda.matmul.allow_tf32 = before
            return self.first(y)

    for lasting in (False, True):
        model = net(Flipping)
        if lasting:
            model.register_forward_hook(
                lambda *_: torch.use_deterministic_algorithms(
                    not torch.are_deterministic_algorithms_enabled(), warn_only=True
                )
            )
        for i in range(CALLS):
            run.see(model(data(i)), backends.cuda.matmul.allow_tf32, torch.are_deterministic_algorithms_enabled())
    torch.use_deterministic_algorithms(False)


@case("default dtype, default device, grad, inference and autocast modes in turn, nested, inside and outside")
def modes_in_turn(run: Run) -> None:
    class Making(Net):
        def forward(self, x: torch.Tensor) -> Any:
            y = super().forward(x)
            with torch.autocast(bed.device(), enabled=False), torch.inference_mode(torch.is_inference_mode_enabled()):
                z = y.float() @ y.float().t()
            return y, z, torch.zeros(2), torch.ones(3, device=x.device), torch.is_grad_enabled()

    class Inner(Net):
        @torch.inference_mode()
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x)

    model, inner = net(Making).requires_grad_(False), net(Inner)
    modes = [
        contextlib.nullcontext,
        torch.no_grad,
        torch.enable_grad,
        torch.inference_mode,
        run.autocast,
        lambda: run.autocast(torch.float16),
        lambda: torch.device(bed.device()),
        lambda: torch.set_grad_enabled(True),
    ]
    for outer in modes:
        for nested in modes:
            with outer(), nested():
                for i in range(5):
                    run.see(model(data(i)), inner(data(i)))
    for dtype in (torch.float64, torch.bfloat16, torch.float32):
        torch.set_default_dtype(dtype)
        for i in range(5):
            run.see(model(data(i)))
    torch.set_default_device(bed.device())
    for i in range(5):
        run.see(model(data(i)))


@case("threads on streams of their own, all in one model, while another thread changes weights between rounds")
def threads_on_streams(run: Run) -> None:
    models, mine = [net(), net(seed=2)], threading.local()

    def answer(i: int) -> torch.Tensor:
        if not hasattr(mine, "stream"):
            mine.stream = run.stream()
        with torch.inference_mode(), run.on(mine.stream):
            y = models[i % 2](models[(i + 1) % 2](data(i)))
            mine.stream.synchronize()
            return y.cpu()

    with ThreadPoolExecutor(4) as pool:
        for round_ in range(4):
            run.see([y.clone() for y in pool.map(answer, range(32))])
            with torch.no_grad():
                models[0].third.bias.add_(0.5)


@case("gc at odd times, cycles that hold results and models, finalizers that call the model's parts")
def collections_between_calls(run: Run) -> None:
    model, ends = net(), []

    class Node:
        def __init__(self, y: torch.Tensor) -> None:
            self.y, self.me = y, self

        def __del__(self) -> None:
            ends.append(float(self.y.sum().round()))

    thresholds = gc.get_threshold()
    gc.set_threshold(30, 2, 2)
    try:
        for i in range(60):
            Node(model(data(i)))
            if i % 9 == 4:
                gc.collect()
            if i % 20 == 10:
                gc.freeze()
                gc.unfreeze()
            run.later(model(data(i)))
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    run.see(sorted(ends))


@case("expandable segments are switched on in the middle of the process", late=True)
def allocator_settings(run: Run) -> None:
    run.need_cuda("the CUDA allocator's settings")
    model = net()
    for i in range(10):
        run.see(model(data(i)))
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    try:
        kept = []
        for i in range(24):
            kept.append(torch.full((3 << 20,), float(i), device="cuda"))
            run.see(model(data(i)), model(kept[-1][:256].view(4, 64)))
            if i % 8 == 7:
                del kept[:4]
                torch.cuda.empty_cache()
    finally:
        torch.cuda.memory._set_allocator_settings("expandable_segments:False")
    for i in range(8):
        run.see(model(data(i)))


@case("a memory pool of the program's own around some calls, with the pool's end in between")
def pools_around_calls(run: Run) -> None:
    run.need_cuda("torch.cuda.MemPool")
    model = net()
    for round_ in range(4):
        pool = torch.cuda.MemPool()
        for i in range(12):
            with torch.cuda.use_mem_pool(pool) if i % 3 == 2 else contextlib.nullcontext():
                y = model(data(i))
            run.see(y)
        del pool, y
        gc.collect()
        torch.cuda.empty_cache()
