"""A guard that has a tensor sees each change of its metadata, whatever number of dimensions it has."""

import torch
from torch import nn

from state import Guard, Refused, form, load_torch, refusal

SHAPES = [(), (0,), (4,), (2, 3), (2, 0, 3), (2, 1, 3), (2, 1, 3, 2), (1, 2, 1, 3, 2), (1, 2, 1, 3, 1, 2)]


def last_swapped(t):
    if t.dim() >= 2:
        t.transpose_(-1, -2)


def moved(t):
    t.set_(torch.zeros(100, dtype=t.dtype).untyped_storage(), 5, t.shape, t.stride())


def later(t):
    if t.untyped_storage().nbytes() >= 8:
        t.as_strided_([1] * t.dim(), [1] * t.dim(), 1)


def set_anew(t):
    t.set_(torch.zeros(100, dtype=t.dtype).untyped_storage(), 3, (2, 2), (2, 1))


def stride_of_one(t):
    t.as_strided_(t.shape, [99 if n == 1 else stride for n, stride in zip(t.shape, t.stride())])


def requires_grad(t):
    t.data = t.data.float()
    t.requires_grad_()


MUTATIONS = {
    "another type": lambda t: setattr(t, "data", t.data.view(torch.float32)),
    "a wider type": lambda t: setattr(t, "data", t.data.to(torch.int64)),
    "one dimension more": lambda t: t.unsqueeze_(0),
    "all of one squeezed": lambda t: t.squeeze_(),
    "strides": last_swapped,
    "a stride of a dimension of one": stride_of_one,
    "no strides": lambda t: t.as_strided_(t.shape, [0] * t.dim()),
    "offset": later,
    "other memory": moved,
    "larger storage": lambda t: t.untyped_storage().resize_(4096),
    "smaller storage": lambda t: t.untyped_storage().resize_(0),
    "resized": lambda t: t.resize_(7, 9),
    "set anew": set_anew,
    "requires grad": requires_grad,
    "content": lambda t: t.add_(1),
    "nothing": lambda t: t.detach(),
}


def facts(t):
    storage = t.untyped_storage()
    memory = (t.data_ptr(), storage.data_ptr(), storage.nbytes(), t.storage_offset())
    return memory, t.dtype, t.shape, t.stride(), t.requires_grad


def state_of(module):
    try:
        return form(module, addresses=True)
    except Refused as refused:
        return str(refused)


def test_marks():
    seen = 0
    for shape in SHAPES:
        for name, mutate in MUTATIONS.items():
            module = nn.Module()
            module.t = torch.zeros(shape, dtype=torch.int32)
            guard, before, expected = Guard(module), facts(module.t), state_of(module)
            assert guard.holds() and guard.walks == 1
            mutate(module.t)
            # The content of a tensor on the CPU counts, too.
            same = facts(module.t) == before and state_of(module) == expected
            assert guard.holds() == same, (shape, name, guard.change)
            seen += not same
    assert seen > 90, seen


def test_memory_that_was_taken():
    """A storage that was given back: there is nothing to read."""
    tensor = torch.zeros(4)
    tensor.untyped_storage().resize_(0)
    assert refusal(tensor) == "root: a tensor on the CPU whose memory was taken from it", refusal(tensor)
    tensor.untyped_storage().resize_(16)
    assert refusal(tensor) is None


if __name__ == "__main__":
    assert load_torch()
    test_marks()
    print("ok test_marks")
    test_memory_that_was_taken()
    print("ok test_memory_that_was_taken")
