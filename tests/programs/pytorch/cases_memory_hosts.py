"""Memory that others see or give back: the host's, files', the allocator's; inputs that move."""

import ctypes
import gc
import os
import select
from typing import Any, Callable

import numpy

import bed
import small
from small import CALLS, F, Net, Run, case, data, net, nn, torch
from cases_memory import TRACED, made


class Plain(nn.Module):
    gain = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * self.gain) + 1


@case("the process forks after replays; the child calls modules on the CPU and ends, the parent goes on", late=True)
def forked(run: Run) -> None:
    model, plain = net(), Plain()
    for i in range(2 * CALLS):
        run.see(model(data(i)), plain(torch.arange(8.0)))
        if i % 9 == 7:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                plain.gain = 3.0 + i
                os.write(write, repr([float(plain(torch.arange(8.0) + j)[3]) for j in range(8)]).encode())
                os._exit(0)
            ready = bool(select.select([read], [], [], 60)[0])
            if not ready:
                os.kill(child, 9)
            os.waitpid(child, 0)
            run.see(os.read(read, 4096) if ready else b"the child hangs")
            os.close(read), os.close(write)


@case("a profiler of the operators watches some calls: it must see all that they do")
def profiled(run: Run) -> None:
    model = net()
    for i in range(2 * CALLS):
        if i % 5 != 4:
            run.see(model(data(i)))
            continue
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            y = model(data(i))
        counts = {e.key: e.count for e in profile.key_averages()}
        run.see(y, [counts.get(f"aten::{name}", 0) for name in ("linear", "gelu", "tanh", "layer_norm")])


class Frame:
    """Somebody's memory, as other libraries hand it out."""


@case("an argument shows memory by __cuda_array_interface__, which another one has as well in the first calls only")
def memory_by_its_address(run: Run) -> None:
    run.need_cuda("__cuda_array_interface__")

    def reading(m: Any, x: torch.Tensor, frame: Frame) -> torch.Tensor:
        return m.net(x) + torch.as_tensor(frame, device=x.device) * 2

    for first in (True, False):
        model, frame, memory = made(reading), Frame(), data(99)
        interface = {"shape": (4, 64), "typestr": "<f4", "data": (memory.data_ptr(), False), "version": 2}
        frame.__cuda_array_interface__ = interface
        for i in range(2 * CALLS):
            memory.add_(0.5)
            run.see(model(memory if (i < 9) == first else data(i), frame), label=f"call {i}")


def host_memory(run: Run, how: Callable[..., Any]) -> None:
    for phase in small.PHASES:
        model, frame, array = made(how), Frame(), numpy.full(64, 1.0, dtype=numpy.float32)
        frame.address, frame.__array_interface__ = array.ctypes.data, {**array.__array_interface__, "shape": (64,)}
        for i in range(CALLS):
            if i in (phase, phase + 4):
                array += 1
            run.see(model(data(i), frame), label=f"change before call {phase}, call {i}")


@case("an argument shows memory of the host by an array interface that is an attribute; the memory is changed")
def host_memory_by_its_interface(run: Run) -> None:
    host_memory(run, lambda m, x, frame: m.net(x) + torch.from_numpy(numpy.asarray(frame)).to(x.device))


@case("a number is read from memory of the host by its address, with ctypes; the memory is changed")
def host_memory_by_its_address(run: Run) -> None:
    host_memory(run, lambda m, x, frame: m.net(x) * ctypes.c_float.from_address(frame.address).value)


def flagged(run: Run, how: Callable[..., Any], change: Callable[..., Any]) -> None:
    model = made(how)
    for i in range(2 * CALLS):
        x, at = data(i), torch.tensor([0, 2, 1])
        if i >= CALLS:
            x, at = change(x, at)
        run.see(model(x, at))


@case("asks whether its argument's storage can be resized, which nothing else tells: one of DLPack's cannot")
def storage_that_cannot_be_resized(run: Run) -> None:
    def asking(m: Any, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return m.net(x)[at] * (1.0 if x.untyped_storage().resizable() else 2.0)

    flagged(run, asking, lambda x, at: (torch.from_dlpack(x), at))


@case("asks whether a tensor on the CPU is shared with other processes, which nothing else tells")
def storage_that_is_shared(run: Run) -> None:
    how = lambda m, x, at: m.net(x)[at] * (2.0 if at.is_shared() else 1.0)  # noqa: E731
    flagged(run, how, lambda x, at: (x, at.share_memory_()))


@case("asks the storage of a tensor on the CPU whether it is pinned")
def storage_that_is_pinned(run: Run) -> None:
    how = lambda m, x, at: m.net(x)[at] * (2.0 if at.untyped_storage().is_pinned() else 1.0)  # noqa: E731
    flagged(run, how, lambda x, at: (x, at.pin_memory() if run.cuda else at))


@case("a constant of a traced function on the device is also the argument in the first calls, and later is not")
def constant_as_argument(run: Run) -> None:
    global TRACED
    for first in (True, False):
        table = data(77)
        TRACED = torch.jit.trace(lambda v, t=table: torch.relu(v * t) + 1, data(0))
        model = made(lambda m, x: TRACED(m.net(x)) + x)
        for i in range(2 * CALLS):
            table.add_(0.25)
            run.see(model(table if (i < 9) == first else data(i)), label=f"call {i}")


def wide(m: Any, x: torch.Tensor) -> torch.Tensor:
    large = x.new_zeros(96 << 20)  # 384 MiB
    return m.net(x) + large.add_(x[0, 0])[:64]


@case("what a model needed for its calls is given back once it is gone, and a peak is about what eager's was")
def memory_after_the_model(run: Run) -> None:
    run.need_cuda("the allocator's numbers")
    run.see(net()(data(0)))
    gc.collect()
    torch.cuda.empty_cache()
    used, reserved, model = torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), made(wide)
    torch.cuda.reset_peak_memory_stats()
    for i in range(2 * CALLS):
        run.see(model(data(i)))
    run.see(torch.cuda.max_memory_allocated() - used < 1000 << 20)
    del model
    gc.collect()
    torch.cuda.empty_cache()
    run.see(torch.cuda.memory_allocated() - used < 200 << 20, torch.cuda.memory_reserved() - reserved < 300 << 20)


OPERATORS = [
    lambda a, b, c: F.conv2d(a, b, padding=1) + c,
    lambda a, b, c: F.conv2d(a, b, padding=4, dilation=2)[..., 2:-2, 2:-2] * c,
    lambda a, b, c: F.conv2d(a, b[:, :1], padding=2, groups=4),
    lambda a, b, c: F.conv_transpose2d(a, b, stride=2, padding=1),
    lambda a, b, c: (F.pad(a, (3, 2, 1, 4), mode="reflect"), F.pad(c, (2, 2, 2, 2), mode="circular")),
    lambda a, b, c: (F.unfold(a, 3, padding=2), F.avg_pool2d(c, 5, 1, 2), F.max_pool2d(a, 3, 2, 1)),
    lambda a, b, c: (a.roll((3, -2), (2, 3)), c.flip(1, 3), a.tril(-2), c.triu(3), a.diagonal(-2, 2, 3).sum()),
    lambda a, b, c: (torch.baddbmm(c[0], a[0], a[1], beta=0.5), torch.addmm(c[0, 0], a[0, 0].t(), a[0, 1]) @ c[1, 0]),
    lambda a, b, c: F.scaled_dot_product_attention(a, c, a + 1, is_causal=True),
    lambda a, b, c: F.scaled_dot_product_attention(a.transpose(1, 2), c.transpose(1, 2), c.transpose(1, 2)),
    lambda a, b, c: F.layer_norm(a, (16,), c[0, 0, 0], c[0, 0, 1]) + F.group_norm(c, 2, a[0, 0, 0, :4], a[0, 0, 1, :4]),
    lambda a, b, c: (torch.cat([a[..., 1:], c[..., :5], a], 3), torch.stack([a, c], 2), a[..., 1:] - c[..., :-1]),
    lambda a, b, c: (a.sort(-1), c.cumsum(2), a.flatten(1).topk(5), c.gather(3, a.argsort(3))),
    lambda a, b, c: F.batch_norm(a, c[0, 0, 0, :4], c[0, 0, 1, :4].abs() + 1, b[0, :, 0, 0], b[1, :, 0, 0]),
    lambda a, b, c: F.interpolate(a, scale_factor=1.5, mode="bicubic") + F.interpolate(c, scale_factor=1.5),
    lambda a, b, c: torch._foreach_add(torch._foreach_mul([a, b, c, a[0], c[1]], 2.0), [c, b, a, c[0], a[1]]),
    lambda a, b, c: torch.where(a > c, a, c).lerp_(a, 0.5).addcmul_(a, c).softmax(-1).var((2, 3)),
    lambda a, b, c: F.linear(a, c[0, 0], c[0, 1, 0]) + torch.einsum("nchw,ndhw->ncd", a, c)[..., None],
]


@case("operators whose inputs lie in one place, between others, until all is proven, and then somewhere else each time")
def inputs_that_move(run: Run) -> None:
    torch.backends.cudnn.deterministic = True
    shapes = ((2, 4, 16, 16), (4, 4, 3, 3), (2, 4, 16, 16))
    for dtype in (torch.float32, torch.bfloat16) if run.cuda else (torch.float32,):
        for kind in range(len(OPERATORS)):
            model, kept = made(lambda m, a, b, c, kind: OPERATORS[kind](a if kind % 2 else torch.tanh(a), b, c)), []
            place = [t for s in shapes for t in (torch.zeros(512, device=bed.device()), data(0, *s, dtype=dtype))]
            for i in range(CALLS):
                inputs = [data(3 * i + j, *shape, dtype=dtype) for j, shape in enumerate(shapes)]
                if i < 8:
                    inputs = [home.copy_(value) for home, value in zip(place[1::2], inputs)]
                else:
                    kept.append(torch.full((777 * i,), float("nan"), device=bed.device()))
                    place.clear()
                run.attempt(model, *inputs, kind)


@case("the call writes one of two buffers of its argument and exchanges them: dictionary, list, object")
def exchanged_buffers(run: Run) -> None:
    def exchanging(m: Any, x: torch.Tensor, state: Any, a: Any, b: Any) -> torch.Tensor:
        parts = vars(state) if isinstance(state, Frame) else state
        y = m.net(x) + parts[a]
        parts[b].copy_(torch.tanh(y))
        parts[a], parts[b] = parts[b], parts[a]
        return y

    for kind in range(3):
        model, one, two, state = made(exchanging), data(100), data(101), Frame()
        state.now, state.next = one, two
        state = [one, two] if kind == 0 else {"now": one, "next": two} if kind == 1 else state
        names = (0, 1) if kind == 0 else ("now", "next")
        for i in range(2 * CALLS):
            if i == 17:
                one.zero_()
            run.see(model(data(i), state, *names), state, one, two)


@case("the call leaves parts of what it returns in its argument; the caller writes to the result, keeps it, puts it in")
def result_and_cache_share(run: Run) -> None:
    def leaving(m: Any, x: torch.Tensor, cache: dict) -> torch.Tensor:
        y = m.net(x) + cache["part"].sum(0) + cache["flat"].view(4, 64)
        cache["part"], cache["flat"], cache["input"] = y[1:3], y.view(-1), x[2:]
        return y

    model, start, y, kept = made(leaving), data(200), data(202), []
    cache = {"part": start[1:3], "flat": start.view(-1), "input": data(201)[2:]}
    for i in range(3 * CALLS):
        x = y if i % 3 == 2 else data(i)
        y = torch.tanh(model(x, cache)) if i % 7 == 6 else model(x, cache)
        if i % 4 != 3:
            y.mul_(0.25)
        kept.append(y)
        run.see(y, x, cache, kept[-6:-5])


@case("the call takes the only reference to its input out of a list, so that its memory is used again at once")
def takes_the_only_reference(run: Run) -> None:
    def taking(m: Any, box: list) -> torch.Tensor:
        x = box.pop()
        h = m.norm(x) + 1
        del x
        z = torch.tanh(h)
        del h
        return m.third(F.gelu(m.first(z)))

    model, kept = made(taking), []
    for i in range(3 * CALLS):
        box = [data(i)]
        if i % 4 == 3:
            kept.append(box[0])
        y = model(box)
        run.see(y, box, kept[-2:])


@case("out= into arguments: fresh, the result before, a part of another, the input itself, one that overlaps it")
def out_arguments(run: Run) -> None:
    def into(m: Any, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        y = m.net(x)
        torch.add(y, x, out=out)
        torch.mul(out, 2, out=m.table)
        torch.sum(m.table, 0, keepdim=True, out=m.table[:1])
        return torch.sub(m.table, y, out=out)

    model, result = made(into), data(300)
    for i in range(45):
        base = data(i, 8, 64)
        none = torch.zeros(0, device=bed.device())
        out = [data(i + 50), result, data(i, 64, 4).t(), base[4:], base[:4], base[2:6], none][0 if i < 5 else i % 7]
        result = run.attempt(model, base[:4], out)
        run.see(base, out, model.table, result is out)
        result = data(i) if result is None else result


@case("a model that keeps its last result in itself is never replayed as a whole, but its parts, on two streams")
def only_the_parts(run: Run) -> None:
    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.act, self.calls, self.side = Net(), Net(), nn.ReLU(inplace=True), 0, (0, 0, 0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            side = small.stream_of(self.side)
            side.wait_stream(small.current_stream())
            with small.on_stream(side):
                g = self.b(x)
            self.last = self.act(self.a(x))
            small.current_stream().wait_stream(side)
            return g.mul_(0.5).add_(self.last[:, :1])

    model, side, kept, x = net(Parent), run.stream(), [], data(0)
    model.side = small.numbers_of(side)
    for i in range(200):
        x = torch.tanh(model(x)) + data(i % 10)
        kept.append(model.last)
        if i % 10 == 9:
            model.a.third.bias.add_(0.01)
            run.see(x, kept[-8:-6], model.calls)
