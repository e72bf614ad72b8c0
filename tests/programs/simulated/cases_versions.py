"""Versions of tensors: how often autograd was told that they were written to. (digest() in bed.py has them, too.)"""
import torch

from bed import case
from tiny import Net, data, net

COUNTS = None


def with_buffer():
    class Counting(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(8))

        def forward(self, x):
            self.seen.add_(1)
            self.seen.mul_(0.5)
            return super().forward(x) + self.seen

    return net(Counting)


@case("eer{6}")
def version_of_a_buffer(run):
    model = with_buffer()
    for i in range(8):
        run(model, data(i))
        run.see(model.seen, model.seen._version)


# A program keeps what it made of a buffer for as long as nobody has written to it.
@case("eer{6}")
def kept_by_version(run):
    model, known, kept = with_buffer(), -1, None
    for i in range(8):
        run(model, data(i))
        if model.seen._version != known:
            known, kept = model.seen._version, model.seen * 2
        run.see(kept)


@case("eer{6}")
def version_of_an_argument(run):
    class Writing(Net):
        def forward(self, x, cache):
            x.mul_(0.5)
            cache["rows"][1:].copy_(x[1:])
            return super().forward(x)

    model = net(Writing)
    for i in range(8):
        x, cache = data(i), {"rows": data(i + 20), "other": data(i + 40)}
        view = cache["rows"].view(-1)
        run(model, x, cache)
        run.see(x, cache, view)


@case("eer{6}")
def versions_of_results(run):
    class Splitting(Net):
        def forward(self, x):
            y = super().forward(x)
            y.mul_(2)
            y.add_(1)
            return y, y[:2], y.view(-1), y * 2, x[1:], y.data

    model = net(Splitting)
    for i in range(8):
        x = data(i)
        result = run(model, x)
        run.see(x)
        for tensor in result:  # who shares with whom
            tensor.mul_(1)
            run.see(x, result)


@case("eer{6}")
def results_that_are_views(run):
    class Splitting(Net):
        def forward(self, x):
            y, z = super().forward(x), x * 2
            return y, y[:2], y.view(-1)[3:], y.data, z[:1], z[1:], x[1:], x.t(), x.detach(), self.first.weight.t()

    model = net(Splitting)
    for i in range(8):
        x = data(i)
        run.see([tensor._is_view() for tensor in run(model, x)])


@case("eer{6}")
def version_of_a_global(run):
    global COUNTS
    COUNTS = torch.zeros(8).cuda()

    class Counting(Net):
        def forward(self, x):
            COUNTS.add_(1)
            return super().forward(x) + COUNTS

    model = net(Counting)
    for i in range(8):
        run(model, data(i))
        run.see(COUNTS, COUNTS._version)


# With GRAPE_CACHE, too, where the first call of a process may be the one that proves.
@case("eer{6}")
def version_of_a_global_in_the_memory_of_a_buffer(run):
    global COUNTS

    class Counting(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(8))

        def forward(self, x):
            COUNTS.add_(1)
            return super().forward(x) + self.seen

    model = net(Counting)
    COUNTS = model.seen.data
    for i in range(8):
        run(model, data(i))
        run.see(COUNTS, model.seen)


@case("eer{6}")
def version_of_a_global_that_is_an_argument_too(run):
    global COUNTS
    COUNTS = torch.zeros(8).cuda()

    class Counting(Net):
        def forward(self, x, counts):
            COUNTS.add_(1)
            counts.add_(1)
            return super().forward(x) + COUNTS

    model = net(Counting)
    for i in range(8):
        run(model, data(i), COUNTS)
        run.see(COUNTS, COUNTS._version)


@case("eer{6}")
def version_of_what_a_closure_holds(run):
    counts = torch.zeros(8).cuda()

    class Counting(Net):
        def forward(self, x):
            counts.add_(1)
            return super().forward(x) + counts

    model = net(Counting)
    for i in range(8):
        run(model, data(i))
        run.see(counts, counts._version)


@case("eer{6}")
def versions_in_inference_mode(run):
    model = with_buffer()
    with torch.inference_mode():
        for i in range(8):
            x = data(i)
            run(model, x)
            run.see(x, model.seen)


# In its second state the call writes as often as before, but to a tensor that shares its version with nobody.
@case("eer{2}e{2,3}r{1,2}e*r*")
def arguments_share_a_version_or_not(run):
    class Writing(Net):
        def forward(self, x, y):
            x.mul_(0.5)
            return super().forward(x)

    model = net(Writing)
    for i in range(8):
        x = data(i)
        y = x.view(-1) if i < 4 else x.data.view(-1)
        run(model, x, y)
        run.see(x, y)
