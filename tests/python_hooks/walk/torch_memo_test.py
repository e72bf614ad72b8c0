"""Walks that take what an earlier one kept of an argument with tensors write what any walk writes, whatever was done to
these since."""

import torch
from torch import nn

from memo_test import same
from state import Memo, cpu_is_device, load_torch
from torch_changes import net
from torch_marks_test import MUTATIONS, SHAPES
from values import Plain


class Layer:
    def __init__(self, shape):
        self.keys, self.values = torch.ones(shape, dtype=torch.int32), torch.ones(shape, dtype=torch.int32)
        self.is_initialized, self.dtype, self.device = True, self.keys.dtype, self.keys.device


class Cache:
    def __init__(self, shape=(2, 3)):
        self.layers = [Layer(shape) for _ in range(6)]


def test_each_change_of_a_tensor():
    used = unused = 0
    for shape in SHAPES:
        for name, mutation in MUTATIONS.items():
            for others in (lambda t: None, lambda t: t, lambda t: t.detach()):
                root, memo = Cache(shape), Memo()
                changed = root.layers[3].values
                root.layers[4].keys = others(changed)
                assert memo.record(torch.zeros(3), root, index=1), (shape, name)
                assert same(memo, torch.zeros(3), root)
                try:
                    mutation(changed)
                except RuntimeError:  # not of such a tensor
                    pass
                if same(memo, torch.zeros(3), root):
                    used += 1
                else:
                    unused += 1
    assert used > 50 and unused > 200, (used, unused)


def test_tensors_that_are_replaced():
    root, memo = Cache(), Memo()
    for replace in (
        lambda: setattr(root.layers[0], "keys", torch.ones(2, 3, dtype=torch.int32)),
        lambda: setattr(root.layers[0], "keys", torch.ones(2, 4, dtype=torch.int32)),
        lambda: setattr(root.layers[1], "values", root.layers[0].keys),
        lambda: setattr(root.layers[2], "values", root.layers[0].keys[1:]),
        lambda: setattr(root.layers[0].keys, "note", [1]),
        lambda: setattr(root.layers[0], "keys", nn.Parameter(torch.ones(3))),
    ):
        assert memo.record(root) and same(memo, root)
        replace()
        assert not same(memo, root)


def test_memory_that_was_met_before():
    root, memo = Cache(), Memo()
    ahead = torch.zeros(3)
    part = root.layers[2].keys[0]
    assert memo.record(ahead, root, index=1)
    assert same(memo, torch.zeros(3), root)
    assert not same(memo, part, root) and not same(memo, root.layers[2].keys, root)
    assert not same(memo, root)
    # Kept of a walk that had met it, it is none.
    assert not memo.record(part, root, index=1)


def test_a_module():
    root, memo = net(), Memo()
    inputs = torch.zeros(2, dtype=torch.int64)
    assert memo.record(root, inputs) and same(memo, root, inputs)
    for change in (
        lambda: root.eval(),
        lambda: setattr(root.blocks[1].linear.weight, "data", torch.zeros(8, 8)),
        lambda: root.blocks[0].register_buffer("later", torch.zeros(3)),
        lambda: root.norm.running_mean.resize_(9),
        lambda: root.half(),
        lambda: root.requires_grad_(False),
        lambda: setattr(root, "kept", torch.zeros(4)),
        lambda: root.blocks[0].register_forward_hook(print),
    ):
        assert memo.record(root, inputs) and same(memo, root, inputs)
        change()
        assert not same(memo, root, inputs)


def test_content_on_the_cpu():
    cpu_is_device(0)
    root, memo = Plain(parts=[[number] for number in range(20)], mask=torch.zeros(40)), Memo()
    assert memo.record(root) and same(memo, root)
    root.mask[7] = 1
    assert not same(memo, root)
    cpu_is_device(1)


if __name__ == "__main__":
    assert load_torch()
    cpu_is_device(1)
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
