"""Usual programs: how programs use PyTorch around their models."""

import copy
import threading
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Iterator

import torch
from torch import nn
from torch.nn import functional

from small import TwoLayers as Net, rows as data, two_layers as net, usual as case


class Block(nn.Module):
    """Attention by hand, a norm, and a layer of experts' size."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(64, 192), nn.Linear(64, 64), nn.LayerNorm(64)

    def forward(self, x: torch.Tensor, cache: Any = None, at: int = 0) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        if cache is not None:
            where = torch.arange(at, at + x.shape[1], device=x.device)
            cache[0].index_copy_(1, where, k)
            cache[1].index_copy_(1, where, v)
            k, v = cache[0][:, : at + x.shape[1]], cache[1][:, : at + x.shape[1]]
        return x + self.out(torch.softmax(q @ k.transpose(1, 2) / 8, dim=-1) @ v)


def tokens(length: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(2, length, 64, generator=torch.Generator().manual_seed(seed)).cuda()


@case
def own_cache() -> Iterator[Any]:
    model = net(Block)
    for request in range(6):
        cache = torch.zeros(2, 2, 32, 64, device="cuda").unbind(0)
        x = model(tokens(4, request), cache)
        for at in range(4, 12):
            x = model(x[:, -1:], cache, at)
            yield x
        yield cache


@case
def trained_and_evaluated() -> Iterator[Any]:
    model, test = net(Block), tokens(6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(4):
        model.train()
        for step in range(3):
            with torch.enable_grad():
                loss = (model(tokens(6, step)) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            yield loss.item()
        model.eval()
        for _ in range(6):
            yield model(test)


@case
def averaged_weights() -> Iterator[Any]:
    model = net(Block)
    average = copy.deepcopy(model)
    for i in range(16):
        if i % 5 == 4:
            for mean, weight in zip(average.parameters(), model.parameters()):
                weight.mul_(1.1)
                mean.lerp_(weight, 0.5)
        yield model(tokens(5)), average(tokens(5))


@case
def adapters() -> Iterator[Any]:
    class Adapted(Net):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleDict({name: nn.Linear(64, 4) for name in ("a", "b")})
            self.up = nn.ModuleDict({name: nn.Linear(4, 64) for name in ("a", "b")})
            self.active: list[str] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            for name in self.active:
                y = y + self.up[name](self.down[name](x))
            return y

    model = net(Adapted)
    for active in ([], ["a"], ["a", "b"], ["b"], [], ["a"]):
        model.active = active
        for i in range(6):
            yield model(data(i))


@case
def functional_calls() -> Iterator[Any]:
    model = net()
    sets = [{name: p * (1 + i) for name, p in model.named_parameters()} for i in range(2)]
    for i in range(14):
        yield torch.func.functional_call(model, sets[i % 2], (data(i),))
        yield model(data(i))


@case
def ensembles() -> Iterator[Any]:
    models = [Net().cuda().eval() for _ in range(3)]
    for i, model in enumerate(models):
        for p in model.parameters():
            p.fill_(0.01 * (i + 1))
    params, buffers = torch.func.stack_module_state(models)
    for i in range(8):
        yield torch.func.vmap(lambda p, b, x: torch.func.functional_call(models[0], (p, b), (x,)), (0, 0, None))(
            params, buffers, data(i)
        )


@case
def scripted_traced_and_exported() -> Iterator[Any]:
    model = net()
    exported = torch.export.export(model, (data(),)).module()
    for made in (torch.jit.script(model), torch.jit.trace(model, data()), exported):
        for i in range(8):
            yield made(data(i))
    outer = nn.Sequential(torch.jit.script(model), nn.Linear(64, 8).cuda()).eval()
    outer[1].weight.fill_(0.1), outer[1].bias.zero_()
    for i in range(8):
        yield outer(data(i))


@case
def recurrent_decoding() -> Iterator[Any]:
    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.cell, self.head = nn.Embedding(50, 64), nn.LSTMCell(64, 64), nn.Linear(64, 50)

        def forward(self, token: torch.Tensor, state: tuple) -> tuple:
            state = self.cell(self.embed(token), state)
            return self.head(state[0]).argmax(-1), state

    model = net(Step)
    for request in range(4):
        token = torch.full((3,), request, device="cuda")
        state = (torch.zeros(3, 64, device="cuda"), torch.zeros(3, 64, device="cuda"))
        for _ in range(20):
            token, state = model(token, state)
            yield token
            if token[0].item() == 7:
                break


@case
def noise_taken_away() -> Iterator[Any]:
    """A diffusion loop: a network that is told the time, and a scheduler's arithmetic, in place."""

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 3, 3, padding=1)
            self.time = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            angles = t[:, None] * torch.exp(-torch.arange(8, device=x.device) / 4)
            at = self.time(torch.cat([angles.sin(), angles.cos()], -1))
            return self.second(functional.silu(functional.group_norm(self.first(x), 4) + at[:, :, None, None]))

    model = net(Denoiser)
    alphas = torch.linspace(0.99, 0.2, 10).cumprod(0).cuda()
    for image in range(4):
        x = torch.randn(1, 3, 16, 16, device="cuda", generator=torch.Generator("cuda").manual_seed(image))
        for step in reversed(range(10)):
            noise = model(x, torch.full((1,), float(step), device="cuda"))
            x.sub_((1 - alphas[step]).sqrt() * noise).div_(alphas[step].sqrt())
            x.clamp_(-3, 3)
        yield x


@case
def moved_away_and_back() -> Iterator[Any]:
    model = net()
    for i in range(18):
        if i % 6 == 5:
            model.cpu()
            yield model(data(i).cpu())
            model.cuda()
            torch.cuda.empty_cache()
        yield model(data(i))


@case
def what_is_selected() -> Iterator[Any]:
    class Selecting(Net):
        def forward(self, x: torch.Tensor) -> Any:
            y = super().forward(x)
            keep = y.mean(-1) > 0
            return y[keep], keep.nonzero(), torch.where(y > 0.5, y, 0).topk(3)

    model = net(Selecting)
    for i in range(16):
        yield model(data(i // 4))


@case
def sound() -> Iterator[Any]:
    class Spectral(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = nn.Conv1d(129, 129, 3, padding=1)
            self.register_buffer("window", torch.hann_window(256))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            spectrum = torch.stft(x, 256, 64, window=self.window, return_complex=True)
            spectrum = spectrum * torch.sigmoid(self.mask(spectrum.abs()))
            return torch.istft(spectrum, 256, 64, window=self.window, length=x.shape[-1])

    model = net(Spectral)
    for i in range(10):
        yield model(torch.randn(2, 2048, generator=torch.Generator().manual_seed(i)).cuda())


@case
def neighbours() -> Iterator[Any]:
    class Graph(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("edges", torch.tensor([[0, 1, 2, 3, 0, 2], [1, 2, 3, 0, 2, 1]]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            sums = torch.zeros_like(y).index_add_(0, self.edges[1], y[self.edges[0]])
            sparse = torch.sparse_coo_tensor(self.edges, torch.ones(6, device=x.device), (4, 4)).coalesce()
            return sums + torch.sparse.mm(sparse, y)

    torch.use_deterministic_algorithms(True, warn_only=True)
    model = net(Graph)
    for i in range(10):
        yield model(data(i)).round(decimals=3)
    torch.use_deterministic_algorithms(False)


@case
def random_inside() -> Iterator[Any]:
    class Random(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = functional.dropout(super().forward(x), 0.3, training=True)
            return y + torch.randn_like(y) * torch.rand(1, device=x.device) + torch.bernoulli(torch.full_like(y, 0.2))

    model = net(Random)
    for i in range(24):
        if i % 6 == 0:
            torch.manual_seed(100 + i)
        if i == 9:
            torch.randn(5, device="cuda")
        if i == 15:
            state = torch.cuda.get_rng_state()
        if i == 20:
            torch.cuda.set_rng_state(state)
        yield model(data(i))
    yield torch.rand(3, device="cuda")


@dataclass
class Sample:
    image: torch.Tensor
    scale: float
    name: str


Result = namedtuple("Result", "value extra")


@case
def structures() -> Iterator[Any]:
    class Structured(Net):
        def forward(self, sample: Sample, *, options: dict) -> Any:
            y = super().forward(sample.image) * sample.scale
            return Result(y, {"name": sample.name, "parts": [y[i] for i in range(options["parts"])], "of": y.shape})

    model = net(Structured)
    for i in range(20):
        sample = Sample(data(i), 1.0 + (i // 5) % 2, "ab"[i // 10])
        result = model(sample, options={"parts": 2})
        yield result.value, list(result.extra.items())


@case
def requests_in_threads() -> Iterator[Any]:
    model, mine = net(Block), threading.local()

    def answer(i: int) -> torch.Tensor:
        if not hasattr(mine, "stream"):
            mine.stream = torch.cuda.Stream()
        with torch.inference_mode(), torch.cuda.stream(mine.stream):
            y = model(tokens(3 + i % 3, i)).sum(1)
            mine.stream.synchronize()
            return y.cpu()

    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            yield [y.clone() for y in pool.map(answer, range(24))]


@case
def a_thread_for_each_request() -> Iterator[Any]:
    model, answers = net(Block), []

    def answer(x: torch.Tensor) -> None:
        with torch.no_grad():
            answers.append(model(x))  # the thread's first work on the device

    for i in range(12):
        thread = threading.Thread(target=answer, args=(tokens(4 + i // 6, i),))
        thread.start()
        thread.join()
        yield answers.pop()


@case
def requests_on_one_stream() -> Iterator[Any]:
    class Reading(Block):
        def forward(self, x: torch.Tensor, cache: Any = None, at: int = 0) -> torch.Tensor:
            y = super().forward(x)
            return y + 1 if y.mean().item() > 0 else y - 1

    models = [net(Block), net(Reading)]

    def answer(i: int) -> torch.Tensor:
        with torch.no_grad():
            return models[i % 2](tokens(3 + i % 3, i)).sum(1)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            yield list(pool.map(answer, range(36)))


@case
def training_beside_answers() -> Iterator[Any]:
    answering, model, test = net(Block), net(Block), tokens(5)

    def train() -> list:
        losses = []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(40):
            loss = (model(tokens(6, step)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    with ThreadPoolExecutor(1) as pool:
        losses = pool.submit(train)
        for _ in range(60):
            yield answering(test)
        yield losses.result()


@case
def memory_runs_out() -> Iterator[Any]:
    class Large(Net):
        def forward(self, x: torch.Tensor, rows: int) -> torch.Tensor:
            return super().forward(x).repeat(rows, 1).sum(0)

    model = net(Large)
    for i in range(14):
        try:
            yield model(data(i), 1 << 40 if i % 5 == 4 else 64)
        except RuntimeError as error:
            yield type(error).__name__


@case
def parametrized() -> Iterator[Any]:
    model = net()
    nn.utils.parametrizations.weight_norm(model.first)
    nn.utils.parametrizations.spectral_norm(model.second)
    model.eval()
    for i in range(14):
        if i == 7:
            model.first.parametrizations.weight.original0.mul_(2)
        yield model(data(i))


@case
def captured_beside() -> Iterator[Any]:
    """The same model in a graph of the program's own, and called."""
    model, x = net(), data()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        model(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    for i in range(12):
        x.copy_(data(i))
        graph.replay()
        yield y.clone(), model(data(i))


@case
def models_come_and_go() -> Iterator[Any]:
    for width in (16, 32, 16, 48, 32):
        torch.manual_seed(width)
        model = nn.Sequential(nn.Linear(64, width), nn.GELU(), nn.Linear(width, 8)).cuda().eval()
        for i in range(6):
            yield model(data(i))
        del model
        torch.cuda.empty_cache()


@case
def results_written_to() -> Iterator[Any]:
    model, total = net(), torch.zeros(4, 64, device="cuda")
    for i in range(14):
        y = model(data(i))
        total += y
        y.relu_()
        y[0] = total[1]
        yield model(y), y
    yield total


@case
def windows_of_one_tensor() -> Iterator[Any]:
    model = net()
    stream = torch.randn(64, 64, generator=torch.Generator().manual_seed(4)).cuda()
    for i in range(0, 40, 2):
        yield model(stream[i : i + 4]), model(stream.t()[i : i + 4])


@case
def switches_between_calls() -> Iterator[Any]:
    model = net()
    for i in range(24):
        torch.backends.cuda.matmul.allow_tf32 = i // 6 % 2 == 1
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=i // 12 == 1):
            yield model(data(i))
    torch.backends.cuda.matmul.allow_tf32 = False
