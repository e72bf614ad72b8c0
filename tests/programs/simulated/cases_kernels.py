"""Kernels with padding, with pointers inside of structs, with random numbers; and those that differ by themselves."""
import ctypes

import torch
from bed import case
from tiny import REFUSED, Net, data, net
from torch import nn


class Padded(Net):
    def forward(self, x):
        return torch.affine(super().forward(x), 1.25, 0.5)


# Whether it is padding, two shadow replays in two calls must show.
@case("eeer{7}", alone=True)
def padding_differs_in_each_launch(run):
    model = net(Padded)
    for i in range(10):
        run(model, data(i))


# And once they did, it is known of this kernel, whoever launches it.
@case("eeer{3}e{2}r{2}e{2}r{2}", alone=True)
def padding_that_is_known(run):
    class Another(Net):
        def forward(self, x):
            return torch.relu(torch.affine(self.first(x), -2.0, 1.0))

    model, other = net(Padded), net(Another)
    for i in range(6):
        run(model, data(i))
    for i in range(4):
        run(model, data(i, rows=5))
    for i in range(4):
        run(other, data(i))


# One shadow replay of each of two models is two of the kernel: the second model is replayed from its third call on.
@case("e{5}r{5}", alone=True)
def padding_that_two_models_show(run):
    class Another(Net):
        def forward(self, x):
            return torch.affine(super().forward(x), 4.0, 1.0)

    models = net(Padded), net(Another)
    for i in range(5):
        for model in models:
            run(model, data(i))


def gather(run):
    class Gathering(Net):
        def forward(self, x, index):
            return torch.take(super().forward(x), index) * 2

    model = net(Gathering)
    kept = []
    for i in range(10):
        index = torch.tensor([float((i + j) % 24) for j in range(6)], dtype=torch.int32).cuda()
        kept.append(index)  # so that each lies elsewhere
        run(model, data(i), index)


@case("eer{8}")
def pointers_in_a_struct(run):
    gather(run)


# Their lower halves look like numbers behind which somebody left the upper half of an address; the first shadow replay
# shows that they are none.
@case("eeeer{6}", environment={"SIMCUDA_BASE": "7ea000000000"})
def pointers_in_a_struct_that_look_like_numbers(run):
    gather(run)


# A value inside of a struct that is no pointer and no padding.
@case("e{4,8}p{0,4}", refusals=("left_other_bytes",))
def number_in_a_struct_differs(run):
    class Scaling(Net):
        def forward(self, x):
            # A function of an extension: taken for one of its arguments, though it is not.
            return torch.affine(super().forward(x), 1.0 + torch._C._next_number() / 4096, 0.5)

    model = net(Scaling)
    for i in range(8):
        run(model, data(i))


class Jittering(Net):
    def forward(self, x):
        y = super().forward(x)
        y.jitter_()
        return y


# Its results differ by themselves, so that nobody compares them: only how the calls were made.
def varying(run, kind=Jittering):
    model = net(kind)
    for i in range(8):
        x, before = data(i), torch._C._operators_run()
        model(x)
        run.calls.append(torch._C._operators_run() - before)


@case("eer{6}")
def kernel_that_is_not_deterministic(run):
    varying(run)


@case("[ep]{8}", refusals=("other_bytes_each_time",), environment={"GRAPE_ALLOW_NONDETERMINISTIC": "0"})
def kernel_that_is_not_deterministic_is_not_allowed(run):
    varying(run)


@case("eer{6}", environment={"GRAPE_ALLOW_NONDETERMINISTIC": "1"})
def kernel_that_is_not_deterministic_is_allowed(run):
    varying(run)


@case("[ep]{8}", refusals=("other_bytes_each_time",), alone=True)
def kernel_that_is_not_deterministic_under_deterministic_algorithms(run):
    torch.use_deterministic_algorithms(True)
    varying(run)


# What varies is all that there is.
@case("[ep]{8}", refusals=("other_bytes_each_time",), alone=True)
def result_that_is_nothing_but_noise(run):
    class Noise(Net):
        def forward(self, x):
            y = super().forward(x) * 0.0
            y.jitter_()
            return y

    varying(run, Noise)


# Memory that others see would drift apart.
@case("[ep]{8}", refusals=("other_bytes_each_time",), alone=True)
def kernel_that_is_not_deterministic_on_a_buffer(run):
    class Drifting(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("sums", torch.ones(8))

        def forward(self, x):
            self.sums.jitter_()
            return super().forward(x)

    varying(run, Drifting)


@case("eer{8}", group="usual")
def dropout(run):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)).cuda().train()
    torch.manual_seed(7)
    for i in range(10):
        run(model, data(i))
        if i % 3 == 0:
            run.see(torch.rand(4, device="cuda"))


# Calls that begin with one state tell nothing of what depends on it.
@case("e{4}r{6}")
def seeded_again_and_again(run):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Dropout(0.25)).cuda().train()
    for i in range(10):
        torch.manual_seed(100 + i // 3)
        run(model, data(1))
        run.see(torch.cuda.default_generators[0].get_offset())


# A seed like any other number in the parameters: what is one, cannot be told.
@case("[ep]+[er]*")
def seeded_by_zero(run):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).cuda().train()
    torch.manual_seed(0)
    for i in range(10):
        run(model, data(1))
        run.see(torch.cuda.default_generators[0].get_offset())


@case("[ep]{8}")
def seeded_by_the_call(run):
    class Seeding(Net):
        def forward(self, x):
            torch.manual_seed(3)
            return torch.dropout(super().forward(x), 0.5)

    model = net(Seeding)
    for i in range(8):
        torch.manual_seed(i)
        run(model, data(i))
        run.see(torch.cuda.default_generators[0].get_offset())


@case("[ep]{8}")
def generator_of_its_own(run):
    class Generating(Net):
        def forward(self, x, generator):
            return super().forward(x) + torch.rand(3, 8, device="cuda", generator=generator)

    model, generator = net(Generating), torch.Generator("cuda")
    for i in range(8):
        run(model, data(i), generator)
    run.see(generator.get_offset())


@case("[ep]{8}")
def generator_of_its_own_in_a_global(run):
    class Generating(Net):
        def forward(self, x):
            return super().forward(x) + torch.rand(3, 8, device="cuda", generator=GENERATOR)

    model = net(Generating)
    for i in range(8):
        run(model, data(i))
    run.see(GENERATOR.get_offset())


GENERATOR = torch.Generator("cuda")


# Memory that no argument and no weight leads to.
@case("eer{6}e{2}r{2}", refusals=("memory_replaced",))
def tensor_in_a_global(run):
    class Using(Net):
        def forward(self, x):
            return super().forward(x) * TABLE[0]

    model = net(Using)
    TABLE[0] = torch.ones(8, device="cuda")
    for i in range(12):
        if i == 4:
            TABLE[0].add_(1)
        if i == 8:
            TABLE[0] = torch.full((8,), 3.0, device="cuda")
        run(model, data(i))


TABLE = [None]


@case("[ep]{8}")
def tensor_in_a_global_replaced_by_the_call(run):
    class Accumulating(Net):
        def forward(self, x):
            y = super().forward(x)
            TABLE[0] = TABLE[0] + y[0]
            return y

    model = net(Accumulating)
    TABLE[0] = torch.zeros(8, device="cuda")
    for i in range(8):
        run(model, data(i))
        run.see(TABLE)


@case("eer{8}")
def tensor_in_a_global_changed_by_the_call(run):
    class Accumulating(Net):
        def forward(self, x):
            y = super().forward(x)
            TABLE[0].add_(y[0])
            return y

    model = net(Accumulating)
    TABLE[0] = torch.zeros(8, device="cuda")
    for i in range(10):
        run(model, data(i))
        run.see(TABLE)


# Far more memory than one segment of the allocator, freed and taken while calls are replayed.
@case("eer{8}")
def memory_comes_and_goes(run):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 300), nn.ReLU(), nn.Linear(300, 8)).cuda()
    kept = []
    for i in range(10):
        run(model, torch.full((300, 8), float(i), device="cuda"))
        kept.append(torch.full((300, 1000), 1.0, device="cuda"))
        if i % 3 == 2:
            kept.clear()
            torch.cuda.empty_cache()


def by_library(run, makes):
    class Copying(Net):
        def forward(self, x):
            return torch._C._library_copy(super().forward(x), makes)

    model = net(Copying)
    for i in range(12):
        run(model, data(i))


# What a library makes once, in its first call, is there for the others: that call counts.
@case("eer{10}", alone=True)
def library_sets_itself_up(run):
    by_library(run, 0)


# One that makes more of it each time cannot be done without.
@case("[ep]{12}", alone=True)
def library_keeps_memory_each_time(run):
    by_library(run, 1)


@case("[ep]{12}", alone=True)
def library_takes_pinned_memory_each_time(run):
    by_library(run, 2)


def with_word(run, library="libcudnn_word.so", bytes=4, first=1.0, then=None):
    """Kernels get the address of memory of the host's that a library keeps. `then`: what is in it in the seventh to ninth
    call."""

    class Adding(Net):
        def forward(self, x):
            return torch._C._add_library_word(super().forward(x), library, bytes)

    model = net(Adding)
    if first is not None:
        torch._C._set_library_word(library, bytes, first)
    for i in range(12):
        if then is not None and i in (6, 9):
            torch._C._set_library_word(library, bytes, then if i == 6 else first)
        run(model, data(i))


@case("eer{10}", alone=True)
def word_of_a_library(run):
    with_word(run)


# The first call began before there was one.
@case("e{3}r{9}", alone=True)
def word_that_a_library_makes_in_the_first_call(run):
    with_word(run, first=None)


# As always, with the new value; and replayed again once the old one is back.
@case("eer{4}e{3}r{3}", alone=True, refusals=("library_memory_changed",))
def word_of_a_library_changes(run):
    with_word(run, then=2.0)


# One that is written to by the call.
@case(REFUSED, alone=True, refusals=("kernel_on_host_memory",))
def word_of_a_library_is_written_each_time(run):
    class Counting(Net):
        def forward(self, x):
            torch._C._set_library_word("libcudnn_word.so", 4, torch._C._next_number())
            return torch._C._add_library_word(super().forward(x), "libcudnn_word.so", 4)

    model = net(Counting)
    for i in range(12):
        run(model, data(i))


@case(REFUSED, alone=True, refusals=("kernel_on_host_memory",))
def word_of_a_library_of_another_name(run):
    with_word(run, library="libother_word.so")


@case(REFUSED, alone=True, refusals=("kernel_on_host_memory",))
def more_memory_of_a_library_than_a_word(run):
    with_word(run, bytes=4096)


# What was observed before may have launched kernels that are gone.
@case("e{3,4}r{4,5}", refusals=("kernels_unloaded_between",))
def kernels_go_between_the_first_calls(run):
    driver, model, loaded = ctypes.CDLL("libcuda.so.1"), net(), ctypes.c_void_p()
    for i in range(8):
        run(model, data(i))
        if i == 0:
            driver.cuModuleLoadData(ctypes.byref(loaded), b"SIMCUDA MODULE 1\n_Z7nothingv\n")
            driver.cuModuleUnload(loaded)
