"""Replays that follow one another: what the next one needs is got ready while one runs, and the guess may be wrong.

After 16 replays some calls may run as always, to be measured.
"""
import gc

import torch
from bed import case
from tiny import Net, data, net


class Cache:
    def __init__(self):
        self.rows = None


class Decoding(Net):
    def forward(self, x, cache):
        y = torch.relu(self.first(x))
        cache.rows = y if cache.rows is None else torch.cat([cache.rows, y])
        return self.second(cache.rows)


def decode(run, model, steps, kept=None):
    cache = Cache()
    for i in range(steps):
        run(model, data(i, 1), cache)
        run.see(cache.rows)
        if kept is not None:
            kept.append(cache.rows)


# Each length is a program, and its inputs are the outputs of the one before.
@case("e{10}[er]{5}r{10}[er]{10}")
def lengths_one_after_the_other(run):
    model = net(Decoding)
    for _ in range(7):
        decode(run, model, 5)


@case("e{10}[er]{5}r{10}[er]{11}")
def sequences_of_other_lengths(run):
    model = net(Decoding)
    for steps in (5, 5, 5, 3, 5, 1, 4, 2, 5, 1):
        decode(run, model, steps)


@case("e{10}[er]{5}r{10}[er]{10}")
def lengths_whose_memory_is_kept(run):
    model, kept = net(Decoding), []
    for _ in range(7):
        decode(run, model, 5, kept)
    run.see(kept)


# A program that comes twice in a row, then another: every second guess is wrong.
@case("e{4}[er]{4}r{10}[er]{18}")
def shapes_in_pairs(run):
    model = net()
    for _ in range(9):
        for rows in (1, 1, 2, 2):
            run(model, data(rows, rows))


@case("e{4}[er]{4}r{10}[er]{18}")
def two_sequences_in_turn(run):
    model = net(Decoding)
    for _ in range(9):
        caches = Cache(), Cache()
        for i in range(2):
            for j, cache in enumerate(caches):
                run(model, data(i + 2 * j, 1), cache)
        run.see([cache.rows for cache in caches])


@case("[er]{24}")
def modes_between_two_lengths(run):
    model = net(Decoding)
    for _ in range(6):
        cache = Cache()
        for i in range(4):
            with torch.inference_mode(i >= 2):
                run(model, data(i, 1), cache)
                run.see(cache.rows)


@case("e{4}[er]{2}r{6}e{2}[er]{4}r{6}")
def weights_between_two_lengths(run):
    model = net(Decoding)
    for round in range(6):
        if round == 3:
            model.second.weight.data = model.second.weight.data * 2
        for _ in range(2):
            decode(run, model, 2)


@case("ee[er]{2}r{8}[er]{12}")
def streams_between_two_calls(run):
    model, x, other = net(), data(), torch.cuda.Stream()
    for i in range(24):
        torch.cuda.synchronize()
        if i >= 12 and i % 2:
            with torch.cuda.stream(other):
                run(model, x)
                torch.cuda.synchronize()
        else:
            run(model, x)


class Scaling(Net):
    def forward(self, tensors):
        return [tensor * self.scale for tensor in tensors]


def scaling(factor):
    model = net(Scaling)
    model.scale = factor
    return model


def tensors_of(seed):
    return [data(seed + i) for i in range(3)]


# Each one's inputs are the outputs of the other, whose next ones lie ready by then.
@case("e{4}r{10}[er]{26}")
def regions_that_feed_one_another(run):
    models, tensors = [scaling(2.0), scaling(0.5)], tensors_of(0)
    for i in range(40):
        tensors = run(models[i % 2], tensors)


@case("e{6}r{10}[er]{56}")
def regions_in_another_order(run):
    models, tensors, kept = [scaling(2.0), scaling(0.5), scaling(-1.0)], tensors_of(0), []
    for order in ("012" * 4, "021" * 4, "010212" * 2, "0112" * 3, "012" * 8):
        for i in map(int, order):
            tensors = run(models[i], tensors)
            kept.append(tensors)
            if len(kept) > 5:
                run.see(kept.pop(i))
    run.see(kept)


# What it had ready goes with it. Another one comes in its place.
@case("e{4}r{9}ere[er]{17}")
def a_region_that_feeds_another_ends(run):
    first, second, tensors = scaling(2.0), scaling(0.5), tensors_of(0)
    for i in range(20):
        if i == 6:
            del second
            gc.collect()
            second = scaling(0.25)
        if i == 13:
            second = None
        tensors = run(first, tensors)
        run.see(tensors)
        if second is not None:
            tensors = run(second, tensors)


# Its proofs go, and what it had ready.
@case("e{4}r{8}e{4}[er]{24}")
def a_region_that_feeds_another_changes(run):
    models, tensors = [scaling(2.0), scaling(0.5)], tensors_of(0)
    for i in range(40):
        if i in (12, 25):
            models[1].scale = models[0].scale = 1.0 + i
        tensors = run(models[i % 2], tensors)
        if i % 10 == 9:
            tensors = tensors_of(i)


# Its inputs are written in place between the two, others are put for them, or come from a step that is left out.
@case("e{4}r{10}[er]{26}")
def what_one_region_feeds_another_is_replaced(run):
    first, second, tensors = scaling(2.0), scaling(0.5), tensors_of(0)
    for i in range(20):
        tensors = run(first, tensors)
        if i % 7 == 3:
            tensors[0].add_(1)
        if i % 7 == 5:
            tensors[1] = data(i)
        if i % 7 == 6:
            tensors = [tensors[0], tensors[2], tensors[1]]
        tensors = run(second, tensors if i % 5 else tensors_of(i))


# What was got ready lies in another pool than the one that the program has chosen since.
@case("eer{12}")
def pool_of_memory_between_calls(run):
    model, results = net(), []

    def look():
        results.append(run(model, data()))
        run.see(torch._C._cuda_poolOf(results[-1].data_ptr()))

    for i in range(14):
        if i in (6, 8, 9):
            with torch.cuda.use_mem_pool(i):
                look()
        else:
            look()


class Layer:
    def __init__(self, number):
        self.keys, self.values, self.number, self.scale, self.names = data(number), data(number + 30), number, 1.0, ["x"]


class Layers:
    def __init__(self):
        self.layers = [Layer(number) for number in range(6)]
        self.length = 0


class Caching(Net):
    """Replaces what a large argument holds, which is walked while the device works, and only checked at the next call."""

    def forward(self, x, cache):
        for layer in cache.layers:
            y = torch.relu(self.first(x)) * layer.scale
            layer.keys, layer.values = layer.keys + self.second(y), layer.values * 2 + layer.number
            if layer.keys is layer.values or len(layer.names) != 1:
                x = x * 3
            x = x + layer.keys
        return x


def changed_caches():
    """What a program may do to it between two calls, in turn; each is looked at once and left for some calls."""

    def replaced(cache):
        cache.layers[2].keys = data(99)

    def written(cache):
        cache.layers[2].keys.add_(1)

    def scaled(cache):
        cache.layers[3].scale = 2.0

    def named(cache):
        cache.layers[1].names.append("y")

    def aliased(cache):
        cache.layers[4].values = cache.layers[5].values

    def one_for_both(cache):
        cache.layers[0].keys = cache.layers[0].values = data(5)

    def reversed_layers(cache):
        cache.layers.reverse()

    def one_layer_less(cache):
        cache.layers.pop()

    def one_attribute_more(cache):
        cache.layers[0].more = 1

    def parts_of_a_whole(cache):
        whole = data(7, 6)
        cache.layers[1].keys, cache.layers[1].values = whole[:3], whole[3:]

    return [replaced, written, scaled, named, aliased, one_for_both, reversed_layers, one_layer_less, one_attribute_more,
            parts_of_a_whole]


def through_changes(run, delay):
    model = net(Caching)
    for change in changed_caches():
        cache = Layers()
        for i in range(10):
            if delay:
                torch.delay(3000)  # microseconds: the device is at work when a replay has been launched
            if i == 6:
                change(cache)
            run(model, data(i), cache)
            if i >= 5:
                run.see([(layer.keys, layer.values) for layer in cache.layers], vars(cache.layers[0]).keys())


@case("(?=(?:e*r){80})eer{14}[er]{84}")
def an_argument_that_is_changed_between_calls(run):
    through_changes(run, delay=True)


@case("(?=(?:e*r){80})eer{14}[er]{84}")
def the_same_without_time_to_look_ahead(run):
    through_changes(run, delay=False)
