"""Usual programs: what a call itself does, beside computing its result, and what becomes of the result."""

from typing import Any, Iterator

import torch
from torch import nn

from small import TwoLayers as Net, rows as data, two_layers as net, usual as case

CALLS = 12


@case
def counter_in_module() -> Iterator[Any]:
    class Counting(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return super().forward(x) * self.count

    model = net(Counting)
    for _ in range(CALLS):
        yield model(data())
    yield model.count


GLOBAL_COUNT = [0]


@case
def counter_in_global() -> Iterator[Any]:
    class Counting(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            GLOBAL_COUNT[0] += 1
            return super().forward(x)

    model = net(Counting)
    for _ in range(CALLS):
        yield model(data())
    yield GLOBAL_COUNT[0]


@case
def input_mutated() -> Iterator[Any]:
    class Mutating(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return super().forward(x)

    model, x = net(Mutating), data()
    for _ in range(CALLS):
        yield model(x)
        yield x.clone()


@case
def buffer_mutated() -> Iterator[Any]:
    class Running(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
            return y + self.mean

    model = net(Running)
    for i in range(CALLS):
        yield model(data(i))
    yield model.mean


@case
def batch_norm_training() -> Iterator[Any]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)).cuda().train()
    for i in range(CALLS):
        yield model(data(i))
    yield model[1].running_mean
    yield model[1].num_batches_tracked


@case
def outputs_share_storage() -> Iterator[Any]:
    class Sharing(Net):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = super().forward(x)
            return y[:2], y[1:], y.t(), y

    model = net(Sharing)
    for i in range(CALLS):
        a, b, c, y = model(data(i))
        a.mul_(2)
        yield [a, b, c, y, a.data_ptr() == y.data_ptr()]


@case
def output_views_input() -> Iterator[Any]:
    class Viewing(Net):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return super().forward(x), x[1:], x

    model = net(Viewing)
    for i in range(CALLS):
        x = data(i)
        y, view, same = model(x)
        view.zero_()
        yield [y, x, same is x, view.data_ptr() == x[1:].data_ptr()]


@case
def value_read_by_host() -> Iterator[Any]:
    class Reading(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            return y + 1 if x.sum().item() > 0 else y - 1

    model = net(Reading)
    for i in range(CALLS * 2):
        yield model(torch.full((4, 64), -1.0 if i in (9, 10, 17) else 1.0, device="cuda"))


@case
def exception_inside() -> Iterator[Any]:
    class Failing(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] == 3:
                raise ValueError("three")
            return super().forward(x)

    model = net(Failing)
    for i in range(CALLS * 2):
        try:
            yield model(torch.ones(3 if i % 4 == 1 else 2, 64, device="cuda"))
        except ValueError as error:
            yield str(error)


@case
def inference_mode_and_autocast() -> Iterator[Any]:
    model = net()
    for i in range(CALLS * 3):
        if i % 3 == 0:
            with torch.inference_mode():
                y = model(data())
                yield [y.clone(), y.is_inference()]
        elif i % 3 == 1:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                yield model(data()).float()
        else:
            yield model(data())


@case
def gradients() -> Iterator[Any]:
    model = net()
    with torch.enable_grad():
        for i in range(CALLS):
            y = model(data(i))
            y.sum().backward()
            yield [y, model.first.weight.grad]
            model.zero_grad()


@case
def two_streams() -> Iterator[Any]:
    model, side = net(), torch.cuda.Stream()
    for i in range(CALLS * 2):
        x = data(i)
        if i % 2:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = model(x)
            torch.cuda.current_stream().wait_stream(side)
            yield y
        else:
            yield model(x)


@case
def attribute_set() -> Iterator[Any]:
    class Setting(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last = super().forward(x)
            return self.last * 2

    model = net(Setting)
    for i in range(CALLS):
        yield model(data(i))
        yield model.last
