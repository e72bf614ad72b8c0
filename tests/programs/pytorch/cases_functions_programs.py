"""Loops as people write them, of functions that are regions: metrics, sampling, schedules of diffusion, averages, training,
what comes before a model and
behind it. See cases_functions.py."""

import contextlib
import logging
import random
from types import SimpleNamespace
from typing import Any

import numpy

import bed
from small import CALLS, F, Net, Run, case, data, ints, net, torch
from cases_functions import called, work


def region_iou(boxes: torch.Tensor) -> torch.Tensor:
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    low = torch.max(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.min(boxes[:, None, 2:], boxes[None, :, 2:])
    inside = (high - low).clamp(min=0).prod(2)
    return inside / (area[:, None] + area[None] - inside)


def region_suppress(boxes: torch.Tensor, scores: torch.Tensor, limit: float = 0.4) -> list:
    order, kept = scores.argsort(descending=True).tolist(), []
    overlaps = region_iou(boxes)
    while order:
        kept.append(order.pop(0))
        order = [i for i in order if not bool(overlaps[kept[-1], i] > limit)]
    return kept


@case("suppression of boxes: a loop that the host's reads steer, on the same boxes, others, and the same again")
def boxes_are_suppressed(run: Run) -> None:
    for i in range(2 * CALLS):
        corner = data(i % 4 // 2, 9, 2).abs()
        boxes, scores = torch.cat([corner, corner + 0.7], 1), data(i // 5, 9)
        kept = region_suppress(boxes, scores)
        run.see(kept, boxes[kept])


class Scores:
    def __init__(self) -> None:
        self.right, self.seen, self.loss, self.history = 0, 0, 0.0, []
        self.matrix = torch.zeros(5, 5, device=bed.device(), dtype=torch.long)

    def region_add(self, logits: torch.Tensor, labels: torch.Tensor) -> None:
        self.loss += F.cross_entropy(logits, labels).item()
        guess = logits.argmax(-1)
        self.right += int((guess == labels).sum())
        self.seen += len(labels)
        self.matrix.index_put_((labels, guess), torch.ones_like(labels), accumulate=True)
        self.history.append(self.right / self.seen)

    def region_result(self) -> dict:
        total = self.matrix.sum(1).clamp(min=1)
        return {"loss": self.loss, "recall": self.matrix.diagonal() / total, "right": self.right}


@case("metrics: the loss by .item(), a matrix of confusion in place, a list of results; the same batches come again")
def metrics_accumulate(run: Run) -> None:
    for epoch in range(3):
        scores = Scores()
        for i in range(CALLS):
            scores.region_add(data(i // 5, 6, 5), ints(i // 5, 5, 6))
            run.see(scores.region_result(), scores.history, scores.matrix)


def region_sample(logits: torch.Tensor, temperature: float, top: int, generator: Any = None) -> torch.Tensor:
    logits = logits / temperature
    limit = logits.topk(top, -1).values[:, -1:]
    weights = torch.softmax(logits.masked_fill(logits < limit, -1e9), -1)
    return torch.multinomial(weights, 1, generator=generator)


def region_sample_on_host(logits: torch.Tensor) -> torch.Tensor:
    row = random.randrange(logits.shape[0])
    noise = numpy.random.rand()
    return work(logits[row]) * noise


@case("sampling by the device's numbers, drawn elsewhere too and seeded again, and by random and numpy.random")
def sampling_loops(run: Run) -> None:
    for i in range(2 * CALLS):
        if i in (6, 7, 12):
            torch.manual_seed(5)
        if i % 5 == 4:
            torch.rand(3, device=bed.device())
        logits = data(i, 3, 32)
        run.see(region_sample(logits, 0.8, 5), region_sample_on_host(logits))


class Scheduler:
    """As those of diffusers: a place in a list of times, and earlier outputs that are kept."""

    def __init__(self, steps: int) -> None:
        betas = torch.linspace(0.001, 0.2, 40, device="cpu")
        self.alphas = torch.cumprod(1 - betas, 0)
        self.timesteps = torch.linspace(39, 0, steps, device="cpu").long()
        self.index, self.outputs = None, []

    def region_step(self, noise: torch.Tensor, t: Any, x: torch.Tensor, generator: Any = None) -> torch.Tensor:
        if self.index is None:
            self.index = int((self.timesteps == t).nonzero()[0])
        alpha = self.alphas[t]
        last = self.alphas[self.timesteps[self.index + 1]] if self.index + 1 < len(self.timesteps) else torch.ones(())
        self.outputs = [*self.outputs[-1:], noise]
        if len(self.outputs) > 1:
            noise = noise * 1.5 - self.outputs[-2] * 0.5
        start = (x - (1 - alpha).sqrt() * noise) / alpha.sqrt()
        self.index += 1
        y = last.sqrt() * start + (1 - last).sqrt() * noise
        return y if generator is None else y + torch.randn(y.shape, generator=generator, device=y.device) * 0.01


@case("diffusion: x = step(model(x, t), t, x) with times on the host, several images, with noise and without")
def diffusion_loops(run: Run) -> None:
    model, generator = net(), torch.Generator(bed.device()).manual_seed(1)
    for image in range(5):
        scheduler, x = Scheduler(8), data(image)
        for t in scheduler.timesteps if image % 2 else scheduler.timesteps.tolist():
            x = scheduler.region_step(model(x), t, x, generator if image > 2 else None)
            run.see(x, scheduler.index)


def region_guided(noise: torch.Tensor, scale: float) -> torch.Tensor:
    low, high = noise.chunk(2)
    mixed = low + scale * (high - low)
    return mixed * (high.std(dim=1, keepdim=True) / mixed.std(dim=1, keepdim=True))


@case("guidance: the scale is a number that changes from step to step and comes again in each image")
def guidance(run: Run) -> None:
    for image in range(5):
        for step in range(6):
            run.see(region_guided(data(step + image, 4, 64), 1.0 + step * 0.5))


def region_step_by_hand(weights: list, gradients: list, rate: float) -> None:
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients):
            weight.sub_(work(gradient), alpha=rate)


@case("weights that are updated by hand under no_grad(); gradients are computed between calls")
def updates_by_hand(run: Run) -> None:
    with torch.enable_grad():
        weights = [data(80, 64, 64).requires_grad_(), data(81, 64).requires_grad_()]
        for i in range(2 * CALLS):
            loss = (torch.tanh(data(i) @ weights[0] + weights[1]) ** 2).mean()
            gradients = torch.autograd.grad(loss, weights)
            region_step_by_hand(weights, list(gradients), 0.1 if i < 15 else 0.05)
            run.see(loss, weights, [w._version for w in weights])


def region_loss(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return ((work(x) @ weight) ** 2).mean()


def region_clip(weights: list, most: float) -> torch.Tensor:
    norm = torch.stack([w.grad.norm() for w in weights if w.grad is not None]).norm()
    for w in weights:
        w.grad.mul_((most / (norm + 1e-6)).clamp(max=1.0))
    return norm


@case("training: a loss by a function, gradients that are clipped by another one, an optimizer; evaluated in between")
def training_loops(run: Run) -> None:
    with torch.enable_grad():
        weight = data(82, 64, 8).requires_grad_()
        for kind in (torch.optim.SGD, torch.optim.Adam):
            optimizer = kind([weight], lr=0.05)
            for i in range(2 * CALLS):
                loss = region_loss(data(i % 3), weight)
                loss.backward()
                norm = region_clip([weight], 0.5)
                optimizer.step()
                optimizer.zero_grad(set_to_none=i % 2 == 0)
                with torch.no_grad():
                    run.see(loss, norm, weight, region_loss(data(50), weight), loss.requires_grad)


def region_average_of(target: torch.nn.Module, source: torch.nn.Module, decay: float) -> None:
    with torch.no_grad():
        for mine, other in zip(target.parameters(), source.parameters()):
            mine.mul_(decay).add_(other, alpha=1 - decay)


@case("an average of a model's weights in another model, both called in between; weights are replaced")
def averages_of_models(run: Run) -> None:
    source, target = net(), net(seed=2)
    for i in range(2 * CALLS):
        for parameter in source.parameters():
            parameter.data.add_(0.01)
        if i == 12:
            source.third.bias = torch.nn.Parameter(torch.ones(64, device=bed.device()))
        region_average_of(target, source, 0.9)
        run.see(target(data(i)), source(data(i)), target)


def region_augment(x: torch.Tensor) -> torch.Tensor:
    shift = random.randint(0, 3)
    x = torch.roll(x, shift, -1)
    if torch.rand(()).item() < 0.5:
        x = x.flip(-1)
    return work(x) + torch.randn_like(x) * 0.1


@case("augmentation by random numbers of the host and of the device; seeded alike for each of several epochs")
def augmentation(run: Run) -> None:
    for epoch in range(3):
        random.seed(3), torch.manual_seed(4)
        for i in range(CALLS):
            run.see(region_augment(data(i)))


def region_normalise(image: torch.Tensor, mean: tuple = (0.4, 0.5), std: tuple = (0.2, 0.3)) -> torch.Tensor:
    image = image.float() / 255
    mean_, std_ = torch.tensor(mean, device=image.device), torch.tensor(std, device=image.device)
    image = (image - mean_[:, None, None]) / std_[:, None, None]
    return F.interpolate(image[None], size=(12, 12), mode="bilinear")[0]


@case("images of bytes: numbers from the host become tensors on the device, sizes differ, defaults are passed")
def images_are_prepared(run: Run) -> None:
    for i in range(2 * CALLS):
        size = 16 if i % 4 else 20
        image = ints(i, 255, 2, size, size).to(torch.uint8)
        run.see(region_normalise(image), region_normalise(image, (0.1 * (i // 9), 0.5)))


def region_converge(x: torch.Tensor, tolerance: float) -> tuple:
    steps = 0
    while True:
        y = x - 0.5 * torch.tanh(x)
        steps += 1
        if (y - x).abs().max().item() < tolerance or steps == 20:
            return y, steps
        x = y


@case("a loop until it converges: the number of steps is the host's to see")
def loops_that_converge(run: Run) -> None:
    called(run, region_converge, lambda i: (data(i // 4) * (1 + i % 2), 0.05))


def region_that_may_raise(x: torch.Tensor, log: list) -> torch.Tensor:
    try:
        y = work(x)
        if y.sum() < 0:
            raise ValueError("negative")
        return y
    finally:
        log.append(len(log))


def region_that_catches(x: torch.Tensor) -> torch.Tensor:
    try:
        return work(x) + x[10]
    except IndexError as error:
        return work(x) * len(str(error))


@case("raises by a number of the device's, catches an error of PyTorch's, and leaves a note in any case")
def exceptions_of_functions(run: Run) -> None:
    log: list = []
    for i in range(2 * CALLS):
        run.attempt(region_that_may_raise, data(i // 3) * (1 if i % 4 else -9), log)
        run.see(log, region_that_catches(data(i)))


def region_reorder(cache: list, beams: torch.Tensor) -> list:
    return [tuple(part.index_select(0, beams) for part in layer) for layer in cache]


def region_top(scores: torch.Tensor, beams: int) -> tuple:
    values, at = torch.topk(torch.log_softmax(scores, -1).view(-1), 2 * beams)
    return values, at // scores.shape[-1], at % scores.shape[-1]


@case("beam search: caches that grow are reordered, the best are taken; several requests of one length")
def beams_are_reordered(run: Run) -> None:
    model = net()
    for request in range(5):
        cache, x = [(data(request, 3, 2, 8), data(1, 3, 2, 8))], data(request, 3, 64)
        for step in range(6):
            x = model(x)
            values, rows, at = region_top(x, 3)
            cache = region_reorder(cache, rows[:3])
            cache = [tuple(torch.cat([part, part[:, -1:] * 0.5], 1) for part in layer) for layer in cache]
            x = x[rows[:3]]
            run.see(values, at, cache)


LOG = logging.getLogger("corners.functions")


def region_that_logs(x: torch.Tensor, state: Any) -> torch.Tensor:
    y = work(x)
    if LOG.isEnabledFor(logging.INFO):
        state.lines.append("logged")
    LOG.debug("mean %s", state)
    return y * 2


@case("a logger, whose level is set between calls")
def logging_functions(run: Run) -> None:
    state = SimpleNamespace(lines=[])
    changes = {6: lambda: LOG.setLevel(logging.INFO), 9: lambda: LOG.setLevel(logging.ERROR)}
    called(run, region_that_logs, lambda i: (data(i), state), changes)


def region_kmeans(points: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    nearest = torch.cdist(points, centres).argmin(1)
    # index_add_() adds by atomic operations, in another order each time.
    inside = (nearest[:, None] == torch.arange(len(centres), device=points.device)).to(points.dtype)
    sums = inside.t() @ points
    counts = torch.bincount(nearest, minlength=len(centres)).clamp(min=1)
    return sums / counts[:, None]


@case("k-means: counts by bincount, the centres are the next call's")
def means_of_clusters(run: Run) -> None:
    for start in range(3):
        points, centres = data(start, 20, 4), data(start + 9, 3, 4)
        for i in range(CALLS):
            centres = region_kmeans(points, centres)
            run.see(centres)


def region_in_modes(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.relu(work(x) @ weight) @ weight.t()


@case("one function under autocast, other streams, inference mode, and with gradients, in turns and in rows")
def functions_in_modes(run: Run) -> None:
    weight, stream = data(90, 64, 32).requires_grad_(), run.stream()
    around = (
        contextlib.nullcontext,
        run.autocast,
        torch.inference_mode,
        torch.enable_grad,
        lambda: run.on(stream),
        lambda: run.autocast(torch.float16),
    )
    for rows in (6, 1):
        for i in range(3 * len(around) * (2 if rows == 6 else 1)):
            run.synchronize()
            with around[i // rows % len(around)]():
                y = region_in_modes(data(i), weight)
            run.synchronize()
            run.see(y, y.requires_grad, y.is_inference())


class Agent:
    """An episode: a state that comes and goes, actions by the host, a table of values."""

    def __init__(self) -> None:
        self.values = torch.zeros(6, 3, device=bed.device())
        self.state, self.steps = 0, 0

    def region_act(self, explore: float) -> int:
        if random.random() < explore:
            return random.randrange(3)
        return int(work(self.values[self.state]).argmax())

    def region_learn(self, action: int, reward: float) -> None:
        following = (self.state * 2 + action) % 6
        target = reward + 0.9 * self.values[following].max()
        self.values[self.state, action] += 0.5 * (target - self.values[self.state, action])
        self.state, self.steps = following, self.steps + 1


@case("an agent's steps: a table in place, its state a number that comes again")
def agents(run: Run) -> None:
    agent = Agent()
    random.seed(5)
    for i in range(6 * CALLS):
        action = agent.region_act(0.0 if i > 20 else 0.5)
        agent.region_learn(action, float(i % 3))
        run.see(action, agent.state, agent.steps, agent.values)


def region_batches(x: torch.Tensor, size: int) -> Any:
    for part in x.split(size):
        yield work(part)


def region_of_batches(x: torch.Tensor, size: int) -> torch.Tensor:
    return torch.cat(list(region_batches(x, size)))


@case("a generator that launches, run whole by a function and half by its caller")
def generators_that_launch(run: Run) -> None:
    for i in range(CALLS):
        parts = region_batches(data(i), 2)
        first = next(parts)
        run.see(first, region_of_batches(data(i), 1 + i // 6))
        parts.close()


class Cached:
    def __init__(self) -> None:
        self.model, self.cache = net(), {}

    def region_encode(self, x: torch.Tensor) -> torch.Tensor:
        return work(x) @ self.model.first.weight.t()

    def region_lookup(self, key: str, x: torch.Tensor) -> torch.Tensor:
        if key not in self.cache:
            if len(self.cache) == 2:
                del self.cache[next(iter(self.cache))]
            self.cache[key] = self.region_encode(x)
        return self.cache[key]


@case("a cache by name in an object that holds a model: weights are replaced and written to, entries fall out")
def caches_of_objects(run: Run) -> None:
    encoder = Cached()
    for i in range(3 * CALLS):
        if i == 14:
            encoder.model.first.weight.data.mul_(2)
        if i == 20:
            encoder.model.load_state_dict(Net().to(bed.device()).state_dict())
        if i == 25:
            encoder.model = net(seed=3)
        name = f"text {i % 3 if i % 4 else 0}"
        run.see(encoder.region_lookup(name, data(i)), list(encoder.cache), encoder.region_encode(data(i)))


def region_accumulates(total: torch.Tensor, x: torch.Tensor, count: int) -> tuple:
    total += work(x)
    return total, count + 1, total / (count + 1)


@case("a running sum whose count is a number: no two calls are alike, until it begins anew")
def running_sums(run: Run) -> None:
    for turn in range(4):
        total, count = torch.zeros(4, 64, device=bed.device()), 0
        for i in range(6):
            total, count, mean = region_accumulates(total, data(i), count)
            run.see(total, count, mean)


class Ring:
    def __init__(self) -> None:
        self.items = torch.zeros(5, 4, 64, device=bed.device())
        self.at, self.full = 0, False

    def region_push(self, x: torch.Tensor) -> torch.Tensor:
        self.items[self.at].copy_(work(x))
        self.at = (self.at + 1) % len(self.items)
        self.full = self.full or self.at == 0
        return self.items.mean(0) if self.full else self.items[: self.at].mean(0)


@case("a ring of tensors: the place is an attribute, which comes round")
def ring_of_tensors(run: Run) -> None:
    ring = Ring()
    for i in range(4 * CALLS):
        run.see(ring.region_push(data(i)), ring.at, ring.items)
