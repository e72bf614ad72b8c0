"""Walks, guards and switches of a real PyTorch, on the CPU, whose tensors are taken as a GPU's where that is said."""

import copy
import ctypes
import functools
import gc
import random
import sys
import threading
import warnings

import numpy
import torch
from torch import nn

import state
from state import Guard, Refused, Walk, form, refusal
from torch_changes import CHANGES, added, attribute, data, hook, net, none_of

warnings.simplefilter("ignore")
assert state.load_torch(), "this PyTorch is not understood"
state.cpu_is_device(1)


def test_numbers_of_tensors():
    numbers, rest = Walk(torch.zeros(3, 16)[1:], numbers=True).numbers
    assert numbers == [16, 2, 16, 16, 1], "offset, sizes, strides"
    others, same = Walk(torch.zeros(4, 32)[2:], numbers=True).numbers
    assert others == [64, 2, 32, 32, 1] and same == rest
    assert Walk(torch.zeros(64)[16:], numbers=True).numbers[1] != rest
    assert Walk(torch.zeros(3, 32, dtype=torch.half)[1:], numbers=True).numbers[1] != rest


def test_equal_models():
    one, two = net(), net()
    assert form(one) == form(two)
    assert form(one, addresses=True) != form(two, addresses=True)
    assert form(one.blocks) == form(copy.deepcopy(one.blocks))
    walk = Walk(one)
    # The tied weight is one tensor, and one storage; each other has its own.
    assert len(walk.tensor_extents) == len(walk.extents) == len({p for p, _ in walk.extents})
    assert sum(size for _, size in walk.extents) == sum(
        t.untyped_storage().nbytes() for t in [*one.parameters(), *one.buffers(), one.plain]
    )
    assert {id(p) for p in one.parameters()} <= {id(x) for x in walk.objects}


def base():
    return torch.arange(64, dtype=torch.float32)


def unaligned():
    return torch.empty(1000, dtype=torch.uint8)[1:]


def aligned(offset):
    """128 bytes whose address is `offset` above a multiple of 512, with no offset in their storage."""
    raw = torch.empty(2048, dtype=torch.uint8)
    start = -raw.data_ptr() % 512 + offset
    made = torch.frombuffer((ctypes.c_char * 128).from_address(raw.data_ptr() + start), dtype=torch.uint8)
    made.raw = None
    del made.raw
    KEEP.append(raw)
    return made


KEEP = []


def with_attribute(tensor, **attributes):
    tensor.__dict__.update(attributes)
    return tensor


def inference(make):
    with torch.inference_mode():
        return make()


def aliased():
    x = base()
    return [x[:8], x[8:16]]


def aligned_copies():
    x, y = aligned(0), aligned(0)
    return [x, y]


TENSORS = [
    lambda: aligned(0),
    lambda: aligned(8),
    lambda: aligned(32),
    lambda: torch.nn.Parameter(aligned(0), requires_grad=False),
    lambda: aligned(0).view(torch.int8),
    lambda: aligned(0).view(torch.bool),
    lambda: aligned(0).view(torch.float16),
    lambda: aligned(0).view(torch.bfloat16),
    lambda: aligned(0).view(torch.float32),
    lambda: aligned(0).view(torch.float32).requires_grad_(),
    lambda: aligned(0).reshape(8, 16),
    lambda: aligned(0).reshape(16, 8),
    lambda: aligned(0).reshape(16, 8).t(),
    lambda: aligned(0).reshape(1, 128),
    lambda: aligned(0)[:64],
    lambda: aligned(0)[::2],
    lambda: aligned(0)[64:],
    lambda: aligned(0).expand(2, 128),
    lambda: with_attribute(aligned(0), note=1),
    lambda: with_attribute(aligned(0), note=2),
    lambda: inference(lambda: aligned(0)),
    lambda: (lambda x: [x, x])(aligned(0)),
    lambda: (lambda x: [x, x.detach()])(aligned(0)),
    lambda: (lambda x: [x, x[8:]])(aligned(0)),
    lambda: aligned_copies(),
    lambda: torch.Size([1, 2]),
    lambda: (1, 2),
    lambda: torch.device("cpu"),
    lambda: torch.device("cuda"),
    lambda: torch.device("cuda:0"),
    lambda: torch.device("cuda:1"),
    lambda: torch.float32,
    lambda: torch.float64,
    lambda: torch.strided,
    lambda: torch.channels_last,
    lambda: torch.contiguous_format,
    lambda: numpy.float64(1),
    lambda: numpy.float64(2),
    lambda: numpy.int64(1),
    lambda: numpy.int64(2),
    lambda: numpy.int32(1),
    lambda: numpy.uint8(1),
    lambda: numpy.bool_(True),
    lambda: numpy.float32(1),
    lambda: numpy.float32(-0.0),
    lambda: numpy.float32(0.0),
    lambda: numpy.complex128(1),
    lambda: numpy.complex64(1),
    lambda: 1.0,
    lambda: torch.relu,
    lambda: torch.nn.functional.relu,
    lambda: torch.nn.Linear,
    lambda: torch.Tensor.add,
]


def test_tensors():
    by_form = {}
    for number, make in enumerate(TENSORS):
        first, second = make(), make()
        assert form(first) == form(second), number
        assert form(first) not in by_form, (number, by_form[form(first)])
        by_form[form(first)] = number
    # Content on a device is not looked at, that of the host's tensors is.
    ones, zeros = torch.ones(4), torch.zeros(4)
    state.cpu_is_device(0)
    assert form(ones) == form(torch.ones(4)) != form(zeros)
    walk = Walk(ones)
    assert walk.extents == [] and walk.tensor_extents == [0xFFFFFFFF]
    assert form(base()[::2]) != form(base()[1::2])
    assert "too many to compare" in refusal([torch.zeros(64 * 1024 + 1, dtype=torch.uint8)])
    form([torch.zeros(64 * 1024, dtype=torch.uint8)])
    state.cpu_is_device(1)
    walk = Walk(aliased(), base())
    assert walk.tensor_extents == [0, 0, 1] and [size for _, size in walk.extents] == [256, 256]


class Sub(torch.Tensor):
    pass


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(2)


def test_refused_tensors():
    complex_ones = torch.ones(2, dtype=torch.complex64)
    things = [
        torch.ones(2, 2).to_sparse(),
        torch.ones(2, 2).to_sparse_csr(),
        complex_ones.conj(),
        complex_ones.conj().imag,
        torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.quint8),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        torch.ones(2, device="meta"),
        torch.ones(2).as_subclass(Sub),
        fake(),
        nn.UninitializedParameter(),
        torch.Generator(),
        torch.ones(2).untyped_storage(),
        torch.jit.script(nn.Linear(2, 2)),
    ]
    for thing in things:
        assert refusal([thing]) is not None, thing
    not_dense = "root[0]: a tensor that is not a dense one on the CPU or on CUDA (sparse, conjugate, functorch, ...)"
    assert {refusal([thing]) for thing in things[:7]} == {not_dense}
    whole = torch.ones(8)
    part = torch.from_dlpack(whole[:4])
    assert refusal([whole, part]) == "root[1]: a tensor whose memory is another one's as well, in part"

    def inside(x):
        seen.append(refusal([x]))
        return x

    seen = []
    torch.func.vmap(inside)(torch.ones(2, 2))
    torch.func.grad(lambda x: inside(x).sum())(torch.ones(2))
    assert len(seen) == 2 and all(seen), seen
    model = net()
    model.blocks[1].lock = threading.Lock()
    assert refusal(model) == "root.blocks.1.lock: a _thread.lock", refusal(model)


def test_cloned_lazily():
    """Whoever writes to one of them first gets memory of his own: what is written by a graph would be seen in all."""
    expected = "root[0]: a tensor that was cloned lazily (torch._lazy_clone), or whose clone was, and that nobody wrote "
    expected += "to since"
    x = torch.ones(8)
    y, address = torch._lazy_clone(x), torch._C._data_address(x)
    views = [x, y, x[2:], y.view(2, 4), y.detach()]
    for tensor in views:
        assert refusal([tensor]) == expected, refusal([tensor])
        assert refusal({"k": [tensor]}) is not None
    assert torch._C._is_cow_tensor(x) and torch._C._is_cow_tensor(y)  # to look at them copies nothing
    y.add_(1)
    assert refusal(views[1::2]) is None and refusal(views[:1]) == expected
    x.add_(1)
    assert refusal(views) is None and torch._C._data_address(x) == address
    model = net()
    guard = Guard(model)
    kept = torch._lazy_clone(model.plain)
    assert guard.holds() and torch._C._is_cow_tensor(kept)  # the clone itself is told of (effects)
    assert "cloned lazily" in refusal(model)


def test_changes():
    assert len(CHANGES) > 50
    for name, change in CHANGES.items():
        model = net()
        guard = Guard(model)
        before = form(model, addresses=True)
        assert guard.bytes == before and guard.holds() and guard.holds() and guard.walks == 1, name
        undo = change(model)
        assert not guard.holds(), name
        assert guard.change, name
        if "all modules" not in name:
            try:
                assert form(model, addresses=True) != before, name
            except Refused:
                pass
        if undo is not None:
            undo()
            assert guard.holds(), (name, guard.change)
            walks = guard.walks
            assert guard.holds() and guard.walks == walks, name


def test_no_changes():
    """What leaves the state as it was: calls, weights written in place, copies of the state."""
    model = net().eval()
    guard = Guard(model)
    with torch.no_grad():
        model(torch.arange(3))
        for parameter in model.parameters():
            parameter.add_(1)
        model.mask.zero_()
    model.state_dict()
    copy.deepcopy(model)
    model.load_state_dict(net(1).state_dict())
    for child in model.children():
        if not isinstance(child, nn.LSTM):  # which has lists of its weights, and makes them anew
            child.to("cpu").to(torch.float32)
    model.eval()
    model.zero_grad()
    list(model.modules())
    model.register_state_dict_pre_hook(none_of)
    assert guard.holds(), guard.change
    guard = Guard(model)
    for _ in range(5):
        with torch.no_grad():
            model(torch.arange(3))
        assert guard.holds()
    assert guard.walks == 1
    model.train()
    model(torch.arange(3)).sum().backward()
    model.eval()
    assert guard.holds(), guard.change


def test_reasons():
    model = net()
    for change, reason in [
        (
            lambda: hook(model.blocks[1].linear.register_forward_hook, none_of),
            None,  # ends with the hook's id
        ),
        (
            lambda: hook(model.blocks[0].linear.register_full_backward_pre_hook, none_of),
            "module.blocks.0.linear: has hooks (_backward_pre_hooks)",
        ),
        (lambda: attribute(model.blocks[0].dropout, "training", False), "module.blocks.0.dropout.training"),
        (lambda: attribute(model.blocks[0].norm, "eps", 0.5), "module.blocks.0.norm.eps"),
        (lambda: data(model.lstm.weight_ih_l0, torch.zeros(32, 8)), "module.lstm.weight_ih_l0"),
        (lambda: added(model.blocks[0], "iterator", iter([])), "module.blocks.0.iterator: a list_iterator"),
    ]:
        guard = Guard(model)
        undo = change()
        assert not guard.holds()
        if reason is None:
            assert guard.change.startswith("module.blocks.1.linear._forward_hooks"), guard.change
        else:
            assert guard.change == reason, (guard.change, reason)
        undo()
        assert guard.holds()
    for register in (
        nn.modules.module.register_module_forward_hook,
        nn.modules.module.register_module_forward_pre_hook,
    ):
        handle = register(none_of)
        try:
            Guard(model)
        except Refused as refused:
            assert "a hook for all modules is registered" in str(refused), refused
        else:
            raise AssertionError("not refused")
        finally:
            handle.remove()
    handle = model.blocks[1].register_full_backward_pre_hook(none_of)
    try:
        Guard(model)
    except Refused as refused:
        assert str(refused) == "module.blocks.1: has hooks (_backward_pre_hooks)", refused
    else:
        raise AssertionError("not refused")
    handle.remove()
    Guard(model)


def test_random_changes():
    source = random.Random(3)
    names = sorted(name for name in CHANGES if "all modules" not in name)
    for _ in range(12):
        model = net()
        guard, before = Guard(model), form(model, addresses=True)
        for _ in range(12):
            name = source.choice(names)
            try:
                undo = CHANGES[name](model)
            except Exception:
                undo = None
            held = guard.holds()
            try:
                same = form(model, addresses=True) == before
            except Refused:
                same = False
            assert held == same, name
            if undo is None:
                break
            undo()
            assert guard.holds(), name


def test_keeps_nothing_alive():
    import weakref

    model = net()
    seen = [weakref.ref(x) for x in (model, model.embed.weight, model.blocks[0], model.mask)]
    counts = [sys.getrefcount(x()) for x in seen]
    guard = Guard(model)
    guard.holds()
    walk = Walk(model)
    assert [sys.getrefcount(x()) for x in seen] == counts
    del model, walk
    gc.collect()
    assert [x() for x in seen] == [None] * 4 and not guard.holds()


def test_partials_of_modules():
    """As wrappers of libraries leave them: forward replaced on the instance by a partial of the module's own."""
    model = net()

    def run(module, *args):
        return module._old(*args)

    model._old = model.forward
    model.forward = functools.partial(run, model)
    other = net()
    other._old = other.forward
    other.forward = functools.partial(run, other)
    assert form(model) == form(other)
    guard = Guard(model)
    assert guard.holds()
    model.forward = functools.partial(run, other)
    assert not guard.holds()


def test_sharing():
    """Which arguments a module holds, and in whose memory of the module's they lie."""
    model = nn.ModuleList(nn.Linear(3, 3) for _ in range(60))
    guard, weights = Guard(model), [layer.weight for layer in model]
    rng = random.Random(3)

    def shared(arguments):
        """Numbers of the objects, and of memory by the numbers of the arguments' memory."""
        words = guard.sharing(Walk(arguments))
        end = words.index(2**64 - 1)
        objects, memory = words[:end], words[end + 1 :]
        assert all(offset == 0 for offset in memory[2::3])
        return [number for number in objects[1::2] if number not in classes], dict(zip(memory[::3], memory[1::3]))

    classes = []
    classes = shared([nn.Parameter(torch.ones(1)), torch.ones(1)])[0]
    number_of = {}
    for i, weight in enumerate(weights):
        objects, memory = shared([weight])
        assert len(objects) == 1 and list(memory) == [0]
        number_of[i] = objects[0], memory[0]
    assert len(set(number_of.values())) == len(weights)
    for _ in range(50):
        chosen = rng.sample(range(60), 20)
        arguments, objects, memory = [], [], {}
        for place, i in enumerate(chosen):
            kind = rng.randrange(3)
            arguments.append((weights[i], weights[i].detach()[1:], torch.ones(9))[kind])
            if kind == 0:
                objects.append(number_of[i][0])
            if kind < 2:
                memory[place] = number_of[i][1]
        assert shared(arguments) == (objects, memory)


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
