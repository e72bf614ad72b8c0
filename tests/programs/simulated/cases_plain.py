"""What is replayed, and from when on."""
import gc
import time

import torch
from bed import case
from tiny import Net, data, net
from torch import nn


@case("eer{8}", group="usual")
def plain_loop(run):
    model = net()
    for i in range(10):
        run(model, data(i))


@case("eer{6}")
def the_same_input(run):
    model, x = net(), data()
    for _ in range(8):
        run(model, x)


# One with padding among them: one call later, unless another case has shown what it is.
@case("eee?r{5,6}")
def operators_of_all_kinds(run):
    class Many(Net):
        def forward(self, x):
            y = super().forward(x)
            z = torch.cat([y.t().contiguous(), (x * 2 + y).t()])
            wide = z.double().float()
            return torch.affine(wide, 1.5, -0.25) - torch.ones(3, device="cuda"), z > 0

    model = net(Many)
    for i in range(8):
        run(model, data(i))


# A signature that comes up once more is observed then; the first of a region at once.
@case("e{10}re{4}r{15}", group="usual")
def shapes_in_turn(run):
    model = net()
    for _ in range(6):
        for rows in range(1, 6):
            run(model, data(rows, rows))


# What fails in a row behind proofs that were not used yet is given up for itself.
@case("e{19}r{4}e{3}r{4}")
def failures_behind_proofs(run):
    class Late(Net):
        def forward(self, x):
            y = super().forward(x)
            return y * (time.time() > 0) if x.shape[0] in (5, 6, 7) else y

    model = net(Late)
    for rows in (9,) + (1, 2, 3, 4) * 3 + (5, 6, 7) * 2 + (1, 2, 3, 4) + (5, 6, 7) + (1, 2, 3, 4):
        run(model, data(rows, rows))


@case("ee[er]{60}", group="usual")  # some calls run as always and are measured
def outputs_kept(run):
    model = net()
    kept = [run(model, data(i)) for i in range(62)]
    run.see(kept)


@case("eer{6}")
def outputs_changed_by_the_caller(run):
    model = net()
    for i in range(8):
        y = run(model, data(i))
        y.mul_(3).add_(1)
        run.see(y)


@case("[ep]{14}")
def children_of_one_that_cannot_be(run):
    class Printing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Net()

        def forward(self, x):
            print("forward")
            return self.inner(x) * 2

    model = net(Printing)
    for i in range(14):
        run(model, data(i))


# Where there is, all that it runs is in the children's replays.
@case("[epr]{6}", refusals=("put_off",), environment={"GRAPE_LOOK_BUDGET": "limited"})
def more_children_than_there_is_time_for(run):
    class Printing(nn.Module):
        def __init__(self):
            super().__init__()
            for i in range(40):
                setattr(self, f"inner{i}", Net())

        def forward(self, x):
            print("forward")
            for i in range(40):
                x = getattr(self, f"inner{i}")(x)
            return x

    model = net(Printing)
    for i in range(6):
        run(model, data(i))


# As tokenizers' encodings that sentence-transformers hands on; the child gets the tensor alone.
@case("ee[ep]*p{20}")
def children_of_one_whose_arguments_are_opaque(run):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Net()

        def forward(self, x, numbers):
            return self.inner(x) * next(numbers)

    model, numbers = net(Counting), iter(range(1, 200))
    for i in range(100):
        run(model, data(i), numbers)
        time.sleep(0.05 if i < 40 else 0)  # what looking at the child costs is a small part of all time


@case("eer{6}")
def module_called_twice_inside(run):
    class Twice(Net):
        def forward(self, x):
            return self.second(self.first(self.second(self.first(x))))

    model = net(Twice)
    for i in range(8):
        run(model, data(i))


@case("e{4,8}p{0,4}")
def module_without_device_memory(run):
    class Plain(nn.Module):
        def forward(self, number):
            return number + 1

    model = Plain()
    data()
    for i in range(8):
        run(model, i)


# What Grape holds for a model's calls goes with it, also where no other model is called. The arena goes, too, that other
# models' calls share with it, until they need it again.
@case("eer{4}")
def memory_of_a_model_that_is_gone(run):
    class Wide(Net):
        def forward(self, x):
            y = super().forward(x)
            for _ in range(3):
                y = torch.cat([y, y, y, y, y, y, y, y])
            return y.sum() + x

    used = torch.cuda.memory.memory_allocated()
    model = net(Wide)
    for i in range(6):
        run(model, data(i))
    del model
    gc.collect()
    run.see(max(torch.cuda.memory.memory_allocated() - used, 0))
