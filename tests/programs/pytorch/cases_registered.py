"""What is registered with PyTorch or kept beside modules: state dicts, hooks, kernels, Python code behind C code."""

import contextlib
import datetime
from typing import Any

import numpy
import torch.distributed as dist
from torch import monitor
from torch.distributions import Normal, kl_divergence, register_kl
from torch.nn.modules.module import register_module_buffer_registration_hook as hook_registrations
from torch.optim import swa_utils
from torch.utils import _pytree

import bed
from small import CALLS, PHASES, Net, Run, Skip, case, changed_at, copy, data, net, nn, torch
from cases_features import After, NOTHING, made, setting, switched


class Stated(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.full((64,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        for name, value in self.state_dict().items():
            if value.shape == (64,):
                y = y + value * len(name)
        return y


@case("the forward goes through its state_dict(); a buffer is registered again, as one that is (not) in it")
def persistence_of_a_buffer(run: Run) -> None:
    def again(m: Any) -> None:
        m.register_buffer("a", m.a, persistent="a" in m._non_persistent_buffers_set)

    changed_at(run, lambda: net(Stated), again)


@case("the forward goes through its state_dict(); hooks that change it are registered after the proof, and removed")
def state_dict_hooks(run: Run) -> None:
    def post(module: Any, state: dict, prefix: str, local_metadata: dict) -> None:
        state[prefix + "bias"] = state[prefix + "bias"] * 3 + 1

    def pre(module: Any, prefix: str, keep_vars: bool) -> None:
        module.bias.data.add_(0.5)

    for name, hook in (("post", post), ("pre", pre)):
        model, handles = net(Stated), []
        for i in range(3 * CALLS):
            if i in (1, 9, 20):
                handles.append(getattr(model.norm, f"register_state_dict_{name}_hook")(hook))
            if i in (14, 30):
                handles.pop().remove()
            run.see(model(data(i)))


class Syncing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.online, self.target = Net(), Net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.target.load_state_dict(self.online.state_dict())
        return self.target(x)


@case("the forward loads one part's state into another; hooks of loading are registered after the proof")
def load_state_dict_hooks(run: Run) -> None:
    def pre(module: Any, state: dict, prefix: str, *_: Any) -> None:
        state[prefix + "first.bias"] = state[prefix + "first.bias"] + 1

    def post(module: Any, keys: Any) -> None:
        module.third.bias.mul_(2).add_(1)

    def call(m: Any, i: int) -> Any:
        m.online.second.weight.mul_(1.01)
        return m(data(i)), m.target.first.bias

    changed_at(run, lambda: net(Syncing), lambda m: m.target.register_load_state_dict_pre_hook(pre), call)
    changed_at(run, lambda: net(Syncing), lambda m: m.target.register_load_state_dict_post_hook(post), call)


def with_buffer(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    part = nn.Module()
    part.register_buffer("made", y)
    return part.made + 1


@case("a hook of all registrations is exchanged for another one; the forward registers a buffer of a part it makes")
def registration_hook_exchanged(run: Run) -> None:
    hooks = [
        lambda m, name, value: value * 2 if name == "made" else None,
        lambda *of: of[2] * 5 if of[1] == "made" else None,
    ]
    for first in (False, True):
        handles = [hook_registrations(hooks[0])] if first else []

        def change(_: Any) -> None:
            if handles:
                handles.pop().remove()
            hooks.reverse()
            handles.append(hook_registrations(hooks[0]))

        try:
            changed_at(run, made(with_buffer), change)
        finally:
            handles.pop().remove()


@case("the forward hooks a part for a moment, to see what it gives; the program sees the numbers of later handles")
def handles_of_hooks(run: Run) -> None:
    class Grabbing(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept: list[Any] = []
            handle = self.second.register_forward_hook(lambda m, a, o: kept.append(o))
            y = super().forward(x)
            handle.remove()
            return y + kept[0].mean()

    model, spare = net(Grabbing), nn.Linear(2, 2)
    first = spare.register_forward_hook(print).id
    for i in range(2 * CALLS):
        run.see(model(data(i)), spare.register_forward_hook(print).id - first)


class Kernel:
    """Nothing that a forward names leads here."""

    def __init__(self) -> None:
        self.scale, self.texts, self.order = 2.0, [], ["a", "b"]

    def __call__(self, x: Any) -> Any:
        return x * self.scale

    def count(self, x: torch.Tensor) -> torch.Tensor:
        self.texts.append("")
        return x * 2

    def note(self, event: Any) -> None:
        self.texts.append(event.name)

    def write(self, text: str) -> int:
        self.texts.append(text)
        return len(text)

    def flatten(self, box: Any) -> Any:
        return [getattr(box, name) for name in self.order], None


@case("an operator's kernel is an object that only the dispatcher holds; its attributes change, or it counts its calls")
def kernel_that_is_an_object(run: Run) -> None:
    library, kernel = torch.library.Library("grape_features", "FRAGMENT"), Kernel()
    for name, function in (("applied", kernel), ("counted", kernel.count)):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, function, bed.device().upper())
    applied = made(lambda y, x: torch.ops.grape_features.applied(y))
    counted = made(lambda y, x: torch.ops.grape_features.counted(y))
    changed_at(run, applied, lambda _: setattr(kernel, "scale", kernel.scale + 1))
    changed_at(run, counted, lambda _: None, lambda m, i: (m(data(i)), len(kernel.texts)), phases=(0,))
    library._destroy()


@case("the kernel of a custom operator is registered again for the same device, or is disabled for a while")
def custom_operator_changes(run: Run) -> None:
    def default(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def again(_: Any) -> None:
        kernels.reverse()
        operator.register_kernel(bed.device())(kernels[0])

    kernels = [lambda x: x * 3, lambda x: x * 5 + 1]
    operator = torch.library.custom_op("grape_features::gain", default, mutates_args=())
    for make in (made(lambda y, x: torch.ops.grape_features.gain(y)), made(lambda y, x: operator(y))):
        again(None)
        changed_at(run, make, again)
        off = lambda on: operator.set_kernel_enabled(bed.device(), False) if on else NOTHING  # noqa: E731
        switched(run, make, off)


def logging(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    monitor.log_event(monitor.Event("called", datetime.datetime(2020, 1, 1), {"rows": 4}))
    return y


@torch.jit.script
def talking(x: torch.Tensor) -> torch.Tensor:
    print("talking")
    return torch.relu(x) * 2


@case("the forward logs an event (torch.monitor), and a method of an object counts; a scripted function prints to one")
def heard_by_an_object(run: Run) -> None:
    model, recorder, printing, sink = net(After, logging), Kernel(), net(After, lambda y, x: talking(y)), Kernel()
    for i in range(3 * CALLS):
        if i in (0, 20):
            handle = monitor.register_event_handler(recorder.note)
        if i in (12, 30):
            monitor.unregister_event_handler(handle)
        run.see(model(data(i)), len(recorder.texts), label=f"event {i}")
    for i in range(2 * CALLS):
        with contextlib.redirect_stdout(sink):
            y = printing(data(i))
        run.see(y, len(sink.texts), label=f"print {i}")


class Box:
    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


def mapped(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    box = _pytree.tree_map(torch.tanh, Box(y, x * 3))
    return box.a - box.b * 2


@case("a class is taken apart (pytree) by a method of an object, which changes what it does; it is registered anew")
def pytree_of_an_object(run: Run) -> None:
    kernels = [Kernel(), Kernel()]

    def again(_: Any) -> None:
        if Box in _pytree.SUPPORTED_NODES:
            _pytree._deregister_pytree_node(Box)
        kernels.reverse()
        _pytree.register_pytree_node(Box, kernels[0].flatten, lambda parts, _: Box(*parts))

    again(None)
    changed_at(run, made(mapped), lambda _: kernels[0].order.reverse())
    kernels[1].order.reverse()
    changed_at(run, made(mapped), again)
    _pytree._deregister_pytree_node(Box)


APPLIED: Any = None


@case("a function of NumPy's that was made of an object (frompyfunc); the object's setting changes")
def ufunc_of_an_object(run: Run) -> None:
    global APPLIED
    kernel = Kernel()
    APPLIED = numpy.frompyfunc(kernel, 1, 1)
    scaling = made(lambda y, x: y * float(APPLIED(1.5)))
    changed_at(run, scaling, lambda _: setattr(kernel, "scale", kernel.scale + 1))


@case("the divergence of two distributions of the user's is registered again, and PyTorch forgets the one it knew")
def divergence_registered_again(run: Run) -> None:
    class Mine(Normal):
        pass

    def again(_: Any) -> None:
        kept.reverse()
        register_kl(Mine, Mine)(kept[0])

    kept = [lambda p, q: (p.loc - q.loc).square(), lambda p, q: (p.loc - q.loc).abs() * 3]
    diverging = made(lambda y, x: kl_divergence(Mine(y, 1.0, validate_args=False), Mine(x, 2.0, validate_args=False)))
    again(None)
    changed_at(run, diverging, again)


class Writing(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(0.5).add_(1)
        self.mean.lerp_(x.mean(0), 0.25)
        return super().forward(x) - self.mean


@case("an argument, or a buffer, that was cloned lazily: it must be copied before the call writes to it")
def copied_on_write(run: Run) -> None:
    for phase in PHASES:
        model, kept = net(Writing), []
        for i in range(CALLS):
            base = data(i)
            x = torch._lazy_clone(base) if i >= phase and i % 2 else base
            run.see(model(x), x, base, label=f"argument from {phase}, call {i}")
        for i in range(CALLS):
            if i in (phase, phase + 4):
                kept.append(torch._lazy_clone(model.mean))
            run.see(model(data(i)), model.mean, kept, label=f"buffer at {phase}, call {i}")


class Marked(torch.Tensor):
    pass


@case("tensors of other kinds made inside, or given back: masked, sparse, of a subclass, parameters, quantised")
def other_tensors_made(run: Run) -> None:
    kinds = [
        lambda y: torch.masked.masked_tensor(y, y > 0).sum(-1).get_data(),
        lambda y: (y.as_subclass(Marked) * 2).as_subclass(torch.Tensor) + 1,
        lambda y: y.as_subclass(Marked),
        lambda y: nn.Parameter(y, requires_grad=False),
        lambda y: nn.Buffer(y),
        lambda y: (y * (y > 1)).to_sparse(),
        lambda y: (y.max(0), y.sort(), torch.finfo(y.dtype).eps, y.layout),
        lambda y: nn.utils.rnn.pack_sequence([y[:3], y[1:3], y[:1]]),
        lambda y: nn.ParameterDict({"y": nn.Parameter(y, requires_grad=False)}),
        lambda y: torch.nested.nested_tensor([y[:2], y[2:3]], layout=torch.jagged).values(),
        lambda y: (torch.view_as_complex(y.view(4, 32, 2)).conj(), y),
        lambda y: torch.quantize_per_tensor(y, 0.1, 0, torch.qint8).dequantize(),
    ]
    for kind in kinds:
        model = net(After, lambda y, x: kind(y))
        for i in range(9):
            run.attempt(model, data(i))


def step_of_lists(y: torch.Tensor, x: torch.Tensor, ones: list, others: list) -> Any:
    torch._foreach_lerp_(ones, others, 0.5)
    torch._foreach_addcdiv_(ones, others, torch._foreach_add(torch._foreach_abs(others), 1.0), value=0.1)
    torch._foreach_mul_(others, y[0, 0])
    greater = torch._foreach_maximum(ones, others)
    torch._foreach_copy_(others[1:4], greater[1:4])
    return greater[::7], torch._foreach_norm(ones)


@case("foreach operators on many tensors of odd sizes, also empty ones, at odd places: structs with lists of pointers")
def lists_of_tensors(run: Run) -> None:
    for count in (7, 40, 130):
        model = net(After, step_of_lists)
        for i in range(12):
            flat, at, lists = data(i, 2, 40000), 0, ([], [])
            for j in range(count):
                size = (3, 0, 64, 1, 257, 5, 1030, 2)[j % 8]
                for row in (0, 1):
                    part = flat[row, at : at + size]
                    lists[row].append(part if j % 3 else part.clone())
                at += size + (i % 2 and j % 4 == 0)
            run.see(model(data(i), *lists), lists[0][::9], lists[1][::9], label=f"{count} tensors, call {i}")


@case("tensors on the CPU that the forward moves: expanded, NumPy's, in shared memory, pinned, changed in place")
def host_tensors_of_all_kinds(run: Run) -> None:
    class Hosted(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + self.table.to(x.device, non_blocking=True).float()

    array = numpy.zeros(64)
    kinds = [
        (lambda: torch.zeros(1).expand(4, 64), lambda t: t[0, :1].add_(1)),
        (lambda: torch.from_numpy(array), lambda t: array.__setitem__(7, array[7] + 1)),
        (lambda: torch.zeros(64, dtype=torch.int16).share_memory_(), lambda t: t.add_(1)),
        (lambda: torch.zeros(4, 999)[:, 3:259:4], lambda t: t[2].add_(0.5)),
        (lambda: torch.zeros(64, pin_memory=run.cuda), lambda t: t.add_(0.5)),
    ]
    for make, change in kinds:
        model = net(Hosted)
        for phase in PHASES:
            model.table = make()
            for i in range(11):
                if i in (phase, phase + 4):
                    change(model.table)
                run.see(model(data(i)))


@case("lazy parts become real in the first call, are exchanged for fresh lazy ones, and copied")
def lazy_parts(run: Run) -> None:
    model = net(lambda: nn.Sequential(nn.LazyLinear(64), nn.Tanh(), nn.LazyBatchNorm1d(), nn.LazyLinear(32)))
    for i in range(4 * CALLS):
        if i in (1, 9, 30):
            model[3] = nn.LazyLinear(32).to(bed.device())
        if i in (15, 40):
            model = copy.deepcopy(model).train(i == 15)
        run.see(model(data(i)), [type(part).__name__ for part in model], list(model.buffers()))


@case("BatchNorm with its counter on the CPU, or its average by the counter; update_bn() between replayed calls")
def counters_of_batch_norm(run: Run) -> None:
    for momentum, on_host in ((0.1, True), (None, True), (None, False)):
        each = nn.InstanceNorm1d(64, affine=True, track_running_stats=True)
        model = nn.Sequential(net(), nn.BatchNorm1d(64, momentum=momentum), nn.GroupNorm(4, 64), each).to(bed.device())
        if on_host:
            model[1].num_batches_tracked = model[1].num_batches_tracked.cpu()
        model[2].register_forward_hook(lambda m, a, y: y[:, :, None].expand(-1, -1, 3).contiguous())
        for i in range(3 * CALLS):
            if i in (8, 20, 33):
                model.train(not model.training)
            if i in (5, 16, 25):
                swa_utils.update_bn([data(100 + j) for j in range(3)], model)
            run.see(model(data(i)), list(model.buffers()))


@case("conversions swap the parameters' insides and leave the objects (set_swap_module_params_on_conversion)")
def swapped_on_conversion(run: Run) -> None:
    other = {name: value * 1.5 for name, value in net(seed=4).state_dict().items()}
    with setting(torch.__future__.set_swap_module_params_on_conversion, True, False):
        for change in (
            lambda m: m.half().float(),
            lambda m: m.load_state_dict(other),
            lambda m: m.load_state_dict({k: v.clone() for k, v in other.items()}, assign=True),
            lambda m: m.to_empty(device=bed.device()).load_state_dict(other),
        ):
            changed_at(run, net, change, lambda m, i: (m(data(i)), m.first.weight), calls=12, phases=(1, 7))


def dual(y: torch.Tensor, x: torch.Tensor, inner: Any, weights: dict) -> Any:
    with torch.autograd.forward_ad.dual_level():
        both = torch.autograd.forward_ad.make_dual(x, y)
        return torch.autograd.forward_ad.unpack_dual(torch.tanh(both) * both).tangent


def vmapped(y: torch.Tensor, x: torch.Tensor, inner: Any, weights: dict) -> Any:
    noisy = lambda row: row + torch.randn_like(row)  # noqa: E731
    return tuple(torch.func.vmap(noisy, randomness=kind)(y) for kind in ("different", "same"))


def called(y: torch.Tensor, x: torch.Tensor, inner: Any, weights: dict) -> Any:
    return torch.func.functional_call(inner, weights, (x,)), inner(x)


@case("forward-mode derivatives, vmap with random numbers, and functional_call with an argument's weights, in forward")
def transforms_inside(run: Run) -> None:
    for after in (dual, vmapped, called):
        model, inner = net(After, after), net(seed=3)
        for i in range(2 * CALLS):
            if i in (9, 17):
                run.seed(i)
            weights = {"first.weight": data(i, 128, 64), "norm.bias": data(i // 4, 64)}
            run.see(model(data(i), inner, weights), inner(data(i)))


BAKED: dict[str, Any] = {"scale": 1.0}


@case("a compiled part has a global baked in; stances of the compiler, module.compile() in turn", late=True)
def compiled_part_reads_a_global(run: Run) -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        return lambda *args: tuple(part * 2 for part in graph.forward(*args))  # not what eager gives

    for compiled in (0, 1):
        BAKED["scale"] = 1.0
        model = nn.Sequential(net(After, lambda y, x: y * BAKED["scale"]), net(seed=2))
        (model if compiled else model[0]).compile(backend=backend)
        for i in range(4 * CALLS):
            if i in (7, 27, 35):
                BAKED["scale"] += 1
            with torch.compiler.set_stance("force_eager" if i // 10 % 2 or i in (3, 25) else "default"):
                run.see(model(data(i)))
    torch.compiler.reset()


@case(
    "torch.cond in forward, by a value of the device that changes late; FX interprets a graph that is edited", late=True
)
def control_flow_and_graphs(run: Run) -> None:
    choosing = net(After, lambda y, x: torch.cond(x[0, 0] > 50, lambda v: v * 2, lambda v: v - 1, (y,)))
    graph = torch.fx.symbolic_trace(net())
    interpreting = net(After, lambda y, x, g: (torch.fx.Interpreter(g).run(x), g(x)))
    for i in range(2 * CALLS):
        x = data(i)
        x[0, 0] = 100.0 if i in (2, 15, 16) else 0.0
        run.attempt(choosing, x)
        if i in (9, 18):
            node = next(n for n in graph.graph.nodes if n.target in (torch.tanh, torch.sigmoid))
            node.target = torch.sigmoid if i == 9 else torch.tanh
            graph.recompile() if i == 18 else None
        run.see(interpreting(x, graph))
    torch.compiler.reset()


@case("the forward asks whether there is a process group, and how large; one comes and goes between calls", late=True)
def process_group_comes(run: Run) -> None:
    try:
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except Exception as error:
        raise Skip(f"no fake process group: {type(error).__name__}") from error

    def shared(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return y / (dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1)

    model = nn.Sequential(net(After, shared), nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(64)))
    model.to(bed.device()).eval()
    for i in range(4 * CALLS):
        if i in (1, 9, 20, 30):
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2 + i % 4)
        if i in (3, 14, 25, 40):
            dist.destroy_process_group()
        run.see(model(data(i)))
