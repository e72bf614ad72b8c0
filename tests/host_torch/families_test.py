"""families_test.py --python INTERPRETER --grape LIBRARY: similar calls prove each other with GRAPE_FAMILIES=1.

Programs call a model with other lengths, batches, slices and ints, at random. What they print is plain's, and with families more
calls are replayed than without where a signature comes seldom.
"""

import random
import sys

import replayed

CALLS = 120


def transformer():
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.project, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x, past=None):
            query, key, value = self.project(self.norm(x)).chunk(3, -1)
            if past is not None:
                key, value = torch.cat([past[0], key], 1), torch.cat([past[1], value], 1)
            weights = torch.softmax(query @ key.transpose(-1, -2) / x.shape[-1] ** 0.5, -1)
            return x + self.out(weights @ value), (key, value)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(50, 32), nn.Linear(32, 50)
            self.blocks = nn.ModuleList(Block(32) for _ in range(2))

        def forward(self, ids, past=None, last=None):
            x, kept = self.embed(ids), []
            for number, block in enumerate(self.blocks):
                x, pair = block(x, None if past is None else past[number])
                kept.append(pair)
            x = self.head(x if last is None else x[:, -last:])
            return x, kept, x.shape[1]

    torch.manual_seed(0)
    return Model().cuda().eval()


def show(result):
    print([value.double().sum().item() if hasattr(value, "double") else value for value in result])


def ids_of(choose, rows, length):
    import torch

    return torch.tensor([[choose.randrange(50) for _ in range(length)] for _ in range(rows)]).cuda()


def lengths(model, choose):
    for _ in range(CALLS):
        result = model(ids_of(choose, 1, choose.randrange(3, 40)))
        show([result[0], *result[1][0], result[2]])


def batches(model, choose):
    for _ in range(CALLS):
        result = model(ids_of(choose, choose.randrange(1, 6), choose.choice((8, 12, 16, 24, 32))))
        show([result[0], result[2]])


def ints(model, choose):
    for _ in range(CALLS):
        length = choose.randrange(6, 20)
        show(model(ids_of(choose, 1, length), last=choose.randrange(1, 6))[::2])


def slices(model, choose):
    buffer = ids_of(choose, 4, 64)
    for _ in range(CALLS):
        begin = choose.randrange(0, 32)
        show(model(buffer[:2, begin : begin + choose.randrange(4, 24)])[::2])


def requests(model, choose):
    for _ in range(CALLS // 12):
        ids, past = ids_of(choose, 1, choose.randrange(4, 12)), None
        for _ in range(choose.randrange(6, 16)):
            logits, past, _ = model(ids, past)
            ids = logits[:, -1].argmax(-1, keepdim=True)
            show([logits, past[1][1]])


def borders(model, choose):
    """From a length on other kernels, or other numbers for the same ones."""
    import torch
    from torch import nn

    class Bordered(nn.Module):
        def forward(self, x):
            x = x * (1.5 if x.shape[0] < 20 else 2.5)
            return x.exp() if x.shape[0] > 30 else x + x.shape[0] // 7

    bordered = Bordered().cuda()
    bordered.weight = nn.Parameter(torch.ones(1, device="cuda"))
    for _ in range(CALLS):
        show([bordered(torch.full((choose.randrange(2, 40), 8), 0.5, device="cuda"))])


def written(model, choose):
    """Into an argument, of which the call changes a part."""
    import torch
    from torch import nn

    class Writing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, buffer, x):
            buffer[: x.shape[0]].add_(self.layer(x))
            return buffer[: x.shape[0]].sum(1)

    torch.manual_seed(1)
    writing, buffer = Writing().cuda(), torch.zeros(64, 8, device="cuda")
    for _ in range(CALLS):
        show([writing(buffer, torch.full((choose.randrange(2, 40), 8), 0.25, device="cuda")), buffer])


def layers(model, choose):
    """The caches of many layers: hundreds of numbers in one signature."""
    import torch
    from torch import nn

    class Caches(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x, caches):
            x = self.layer(x)
            return [(torch.cat([keys, x]), torch.cat([x, values])) for keys, values in caches]

    torch.manual_seed(1)
    caching = Caches().cuda()
    for _ in range(CALLS):
        length = choose.randrange(3, 30)
        caches = [[torch.full((length, 8), layer + 0.5, device="cuda") for _ in range(2)] for layer in range(24)]
        show([tensor for pair in caching(torch.ones(1, 8, device="cuda"), caches) for tensor in pair])


def often(model, choose):
    """So often that replays which a family proved are checked though nobody asked for it."""
    for _ in range(8 * CALLS):
        show(model(ids_of(choose, 1, choose.randrange(3, 40)))[::2])


def trained(model, choose):
    """What calls without gradients do is known by then as it is in training."""
    import torch

    with torch.enable_grad():
        for _ in range(6):
            model(ids_of(choose, 1, 7))[0].sum().backward()
    lengths(model, choose)


PROGRAMS = {each.__name__: each for each in (lengths, batches, ints, slices, requests, borders, written, layers, often, trained)}
GAIN = ("lengths", "batches", "ints", "requests", "layers", "trained")


def is_simulated(python):  # tests/host_torch has an interpreter of its own
    return "host_torch" in python


def main():
    if sys.argv[1:2] == ["--program"]:
        import torch

        with torch.no_grad():
            PROGRAMS[sys.argv[2]](transformer(), random.Random(0))
        return 0
    given = replayed.options(__doc__)

    def counts(program, **settings):
        # On a GPU, too, all looks are made.
        settings = {"GRAPE_LOOK_BUDGET": "unlimited", "GRAPE_EARLY_REGIONS": "1", **settings}
        found = replayed.compare(given, __file__, ["--program", program], **settings)[1]
        return [sum(region[count] for region in found) for count in ("observed", "replayed", "validated")]

    gained = 0
    for program in PROGRAMS:
        without, with_families = counts(program), counts(program, GRAPE_FAMILIES="1")
        checked = counts(program, GRAPE_FAMILIES="1", GRAPE_VALIDATE="1")
        print(f"{program}: observed, replayed, checked {without}, with families {with_families}, asked for {checked[2]}", flush=True)
        # How many calls are replayed depends on the machine as well: they are timed now and then.
        assert with_families[0] <= without[0], program
        gained += with_families[0] < without[0]
        # A GPU has other kernels for other lengths, so not each program gains there.
        assert with_families[0] < without[0] or program not in GAIN or not is_simulated(given.python), program
        assert checked[2] > 0 or program == "slices", program
        assert program != "often" or (without[2] == 0 and with_families[2] > 0)
    assert gained > 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
