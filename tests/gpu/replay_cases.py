#!/usr/bin/env python3
"""Programs that lie in wait for a replayer. Each case is a small model in a loop; the script prints one line per case with
a digest of everything that the program could see. Run it plain and under GRAPE_MODE=replay: the lines must be equal.

replay_cases.py [CASE ...]
"""

import contextvars
import hashlib
import random
import sys
from typing import Any, Callable, Iterator

import torch
from torch import nn

CALLS = 12
CASES: dict[str, Callable[[], Iterator[Any]]] = {}


def case(function: Callable[[], Iterator[Any]]) -> Callable[[], Iterator[Any]]:
    CASES[function.__name__] = function
    return function


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 64)
        self.flag, self.count, self.scale = False, 0, 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def net(kind: type = Net) -> Any:
    torch.manual_seed(1)
    return kind().cuda().eval()


def data(seed: int = 2) -> torch.Tensor:
    return torch.randn(4, 64, generator=torch.Generator().manual_seed(seed)).cuda()


@case
def plain_loop() -> Iterator[Any]:
    model = net()
    for i in range(CALLS):
        yield model(data(i))


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
def prints() -> Iterator[Any]:
    class Printing(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            print("forward")
            return super().forward(x)

    model = net(Printing)
    for _ in range(CALLS):
        yield model(data())


@case
def host_random() -> Iterator[Any]:
    class Random(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * random.random()

    random.seed(5)
    model = net(Random)
    for _ in range(CALLS):
        yield model(data())
    yield random.random()


@case
def flag_flipped() -> Iterator[Any]:
    class Flagged(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if self.flag else super().forward(x) + 1

    model = net(Flagged)
    for i in range(CALLS * 2):
        model.flag = i in (7, 8, 20)
        yield model(data())


GLOBAL_SCALE = 1.0


@case
def global_changed() -> Iterator[Any]:
    class Scaled(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * GLOBAL_SCALE

    global GLOBAL_SCALE
    model = net(Scaled)
    for i in range(CALLS * 2):
        GLOBAL_SCALE = 2.0 if i == 9 else 1.0
        yield model(data())


@case
def closure_changed() -> Iterator[Any]:
    scale = 1.0

    class Scaled(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * scale

    model = net(Scaled)
    for i in range(CALLS * 2):
        scale = 3.0 if i == 10 else 1.0
        yield model(data())


@case
def weight_swapped() -> Iterator[Any]:
    model = net()
    for i in range(CALLS * 2):
        if i == 6:
            model.first.weight = nn.Parameter(torch.ones_like(model.first.weight))
        if i == 14:
            model.first.weight.data = torch.full_like(model.first.weight, 0.5)
        yield model(data())


@case
def weight_changed_in_place() -> Iterator[Any]:
    model = net()
    for i in range(CALLS * 2):
        if i in (6, 7, 15):
            model.first.weight.mul_(1.5)
        yield model(data())


@case
def loaded_and_cast() -> Iterator[Any]:
    model, other = net(), net()
    other.first.weight.mul_(2)
    for i in range(CALLS * 3):
        if i == 6:
            model.load_state_dict(other.state_dict())
        if i == 14:
            model.half()
        if i == 22:
            model.float().cpu().cuda()
        yield model(data().to(model.first.weight.dtype))


@case
def hook_added_later() -> Iterator[Any]:
    model, seen = net(), []
    for i in range(CALLS * 2):
        if i == 8:
            handle = model.second.register_forward_hook(lambda m, a, out: (seen.append(1), out * 2)[1])
        if i == 14:
            handle.remove()
        yield model(data())
    yield len(seen)


@case
def hook_counts() -> Iterator[Any]:
    model, count, seen = net(), 0, {"shapes": []}

    def counting(module: nn.Module, arguments: Any, output: torch.Tensor) -> None:
        nonlocal count
        count += 1

    class Shapes:
        def __call__(self, module: nn.Module, arguments: Any) -> None:
            seen["shapes"].append(tuple(arguments[0].shape))

    handle = model.second.register_forward_hook(counting)
    for i in range(CALLS * 2):
        if i == CALLS:
            handle.remove()
            model.first.register_forward_pre_hook(Shapes())
        yield [model(data(i)), count, len(seen["shapes"])]
    yield seen


@case
def hook_keeps_output() -> Iterator[Any]:
    kept: dict[str, torch.Tensor] = {}
    model = net()
    # The output lies where the last one lay, should that be freed first.
    model.second.register_forward_pre_hook(lambda m, arguments: kept.clear())
    model.second.register_forward_hook(lambda m, arguments, out: kept.update(last=out))
    for i in range(CALLS):
        yield model(data(i))
        yield kept["last"]
    other, module = net(), net()
    other.first.register_forward_hook(lambda m, arguments, out: setattr(m, "last", out))
    buffer = torch.zeros(4, 64, device="cuda")
    module.register_forward_hook(lambda m, arguments, out: buffer.copy_(out) is None)
    for i in range(CALLS):
        yield [other(data(i)), other.first.last, module(data(i)), buffer.clone()]


@case
def hook_replaces_output() -> Iterator[Any]:
    model, scale = net(), [2.0]
    model.second.register_forward_hook(lambda m, arguments, out: out * scale[0])
    model.register_forward_hook(lambda m, arguments, out: {"out": out, "twice": (out, out[1:])})
    for i in range(CALLS * 2):
        scale[0] = 3.0 if i in (9, 17) else 2.0
        result = model(data(i))
        yield [result["out"], result["twice"][1], result["twice"][0] is result["out"]]


@case
def hook_replaces_input() -> Iterator[Any]:
    model, shift = net(), torch.ones(64, device="cuda")
    model.first.register_forward_pre_hook(lambda m, arguments: (arguments[0] + shift,))
    model.register_forward_pre_hook(lambda m, arguments, keywords: (arguments, {}), with_kwargs=True)
    for i in range(CALLS * 2):
        shift.add_(1)
        yield model(data(i))


@case
def hook_removed_later() -> Iterator[Any]:
    model = net()
    handles = [model.second.register_forward_hook(lambda m, a, out, n=n: out + n) for n in (1, 2)]
    for i in range(CALLS * 3):
        if i == 8:
            handles[1].remove()
        if i == 16:
            handles[0].remove()
        if i == 24:
            model.second.register_forward_hook(lambda m, a, out: out * 5)
        yield model(data(i))


COLLECTOR: contextvars.ContextVar[Any] = contextvars.ContextVar("collector", default=None)


@case
def hook_collects_when_asked() -> Iterator[Any]:
    """As Transformers collects hidden states: a context variable says whether, and where to."""

    def collect(module: nn.Module, arguments: Any, output: torch.Tensor) -> None:
        collected = COLLECTOR.get()
        if collected is not None:
            collected.append(output)

    model = net()
    model.first.register_forward_hook(collect)
    for i in range(CALLS * 2):
        collected: list[torch.Tensor] = []
        token = COLLECTOR.set(collected if i in (7, 8, 9, 10, 11, 19) else None)
        yield model(data(i))
        COLLECTOR.reset(token)
        yield collected


@case
def forward_replaced() -> Iterator[Any]:
    model = net()
    for i in range(CALLS * 2):
        if i == 8:
            model.forward = lambda x: x + 1
        if i == 14:
            del model.forward
        if i == 18:
            Net.extra, old = 1, Net.forward
            Net.forward = lambda self, x: old(self, x) * 4
        yield model(data())
    Net.forward = old


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
def outputs_kept() -> Iterator[Any]:
    model = net()
    kept = [model(data(i)) for i in range(100)]
    yield from kept


@case
def dropout() -> Iterator[Any]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.Linear(64, 64)).cuda().train()
    torch.manual_seed(7)
    for i in range(CALLS):
        yield model(data(i))
        if i % 3 == 0:
            yield torch.rand(4, device="cuda")


@case
def shapes_in_turn() -> Iterator[Any]:
    model = net()
    for i in range(CALLS * 4):
        yield model(torch.ones(1 + i % 5, 64, device="cuda") * i)


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


@case
def deleted_models() -> Iterator[Any]:
    for i in range(20):
        model = net()
        for _ in range(6):
            yield model(data(i))
        del model


def add(digest: "hashlib._Hash", value: Any) -> None:
    if isinstance(value, torch.Tensor):
        digest.update(str((value.dtype, tuple(value.shape), value.stride())).encode())
        digest.update(value.detach().float().cpu().contiguous().numpy().tobytes())
    elif isinstance(value, (list, tuple)):
        for part in value:
            add(digest, part)
    else:
        digest.update(repr(value).encode())


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    for name in sys.argv[1:] or CASES:
        digest = hashlib.sha256()
        with torch.no_grad():
            for value in CASES[name]():
                add(digest, value)
        print(f"{name} {digest.hexdigest()[:24]}", flush=True)


if __name__ == "__main__":
    main()
