"""Ways to train: optimizers, schedulers, clipping, accumulation, mixed precision, averages, freezing, evaluation."""

import copy
from typing import Any, Callable

import torch
from bed import Run, program, train
from programs_plain import classify, images
from torch import nn
from torch.nn import functional as F


class SmallNet(nn.Module):
    """A convolution net that works in place where it can, with a part that is easily frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, padding=1), nn.BatchNorm2d(12), nn.Hardswish(inplace=True), nn.AdaptiveAvgPool2d(2),
        )  # fmt: skip
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(48, 16), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(16, 5)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x))


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "sgd_fused": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, fused=True),
    "adam_single": lambda p: torch.optim.Adam(p, lr=1e-3, foreach=False),
    "adam_foreach": lambda p: torch.optim.Adam(p, lr=1e-3, foreach=True, amsgrad=True),
    "adam_fused": lambda p: torch.optim.Adam(p, lr=1e-3, fused=True),
    "adam_capturable": lambda p: torch.optim.Adam(p, lr=1e-3, capturable=True),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-3),
    "radam": lambda p: torch.optim.RAdam(p, lr=1e-3),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-2),
}


def add_optimizer(label: str, make: Callable[[Any], torch.optim.Optimizer]) -> None:
    @program(tags="optimizer conv inplace", name=f"optimizer_{label}")
    def optimizer(run: Run) -> None:
        model = run.put(SmallNet())
        train(run, model, lambda: images(run), classify, make(model.parameters()))

    optimizer.__doc__ = f"A small convolution net with {label}"


for _label, _make in OPTIMIZERS.items():
    add_optimizer(_label, _make)


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
    "one_cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=400),
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 4, 0.5),
    "warm_up": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=5), torch.optim.lr_scheduler.ExponentialLR(o, 0.95)],
        [5],
    ),
}


def add_scheduler(label: str, make: Callable[[Any], Any]) -> None:
    @program(tags="scheduler conv inplace", name=f"scheduler_{label}")
    def scheduler(run: Run) -> None:
        model = run.put(SmallNet())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        rate = make(optimizer)
        for _ in run.steps():
            x, y = images(run)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rate.step()
            run.see(loss=loss, model=model, rate=rate.get_last_lr())

    scheduler.__doc__ = f"The learning rate changes each step ({label})"


for _label, _make in SCHEDULERS.items():
    add_scheduler(_label, _make)


@program(tags="accumulation clipping conv inplace")
def accumulation_and_clipping(run: Run) -> None:
    """Four backward passes for a step, then clip_grad_norm_; every third time clip_grad_value_."""
    model = run.put(SmallNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in run.steps():
        for _ in range(4):
            x, y = images(run)
            loss = F.cross_entropy(model(x), y) / 4
            loss.backward()
        run.see(loss=loss, before=[parameter.grad for parameter in model.parameters()])
        if step % 3 == 2:
            nn.utils.clip_grad_value_(model.parameters(), 0.01)
        else:
            run.see(norm=nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        run.see(model=model)
        optimizer.step()
        optimizer.zero_grad()


def add_autocast(dtype: torch.dtype, scaled: bool, name: str) -> None:
    @program(tags="autocast conv inplace", name=name)
    def autocast(run: Run) -> None:
        model = run.put(SmallNet())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler(run.device.type, enabled=scaled, init_scale=2.0**14, growth_interval=5)
        for _ in run.steps():
            x, y = images(run)
            with torch.autocast(run.device.type, dtype=dtype):
                out = model(x)
                loss = F.cross_entropy(out, y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            if scaled:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            run.see(loss=loss, out=out, model=model, scaler=scaler, optimizer=optimizer)

    autocast.__doc__ = f"Autocast to {dtype}{' with GradScaler and clipping' if scaled else ''}"


add_autocast(torch.bfloat16, False, "autocast_bf16")
add_autocast(torch.float16, True, "autocast_fp16_scaler")


@program(tags="autocast")
def scaler_overflow(run: Run) -> None:
    """A GradScaler that skips steps, because gradients overflow."""
    model = run.put(nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(run.device.type, init_scale=2.0**24, growth_interval=2)
    for _ in run.steps(run.count * 2):
        with torch.autocast(run.device.type, dtype=torch.float16):
            loss = model(run.randn(4, 8) * 10).pow(2).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        run.see(loss=loss, grads=[parameter.grad for parameter in model.parameters()])
        scaler.step(optimizer)
        scaler.update()
        run.see(model=model, scaler=scaler)


@program(tags="half conv inplace")
def pure_bf16(run: Run) -> None:
    """Weights in bfloat16, channels last."""
    model = run.put(SmallNet()).to(torch.bfloat16).to(memory_format=torch.channels_last)

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        x, y = images(run)
        return x.to(torch.bfloat16, memory_format=torch.channels_last), y

    train(run, model, batch, classify, torch.optim.SGD(model.parameters(), lr=0.01))


@program(tags="ema conv inplace")
def weight_average(run: Run) -> None:
    """An average of the weights by hand, which is evaluated every few steps and swapped in for a while."""
    model = run.put(SmallNet())
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        x, y = images(run)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for ours, theirs in zip(average.state_dict().values(), model.state_dict().values()):
                if ours.is_floating_point():
                    ours.mul_(0.95).add_(theirs, alpha=0.05)
        run.see(loss=loss, model=model, average=average)
        if step % 4 == 3:
            average.eval()
            with torch.inference_mode():
                run.see(of_average=average(x).clone())
            average.train()


def add_frozen(label: str) -> None:
    @program(tags="frozen conv inplace", name=f"frozen_{label}")
    def frozen(run: Run) -> None:
        model = run.put(SmallNet())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in run.steps(run.count * 2):
            free = step >= run.count if label == "then_free" else (step // 8) % 2 == 0
            model.backbone.requires_grad_(free)
            if label == "in_eval":
                model.backbone.train(free)
            x, y = images(run)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            run.see(loss=loss)
            optimizer.step()
            run.see(model=model)

    frozen.__doc__ = f"The backbone is frozen and free in turn ({label})"


for _label in ("then_free", "in_turn", "in_eval"):
    add_frozen(_label)


@program(tags="frozen conv inplace")
def frozen_under_no_grad(run: Run) -> None:
    """The backbone runs without gradients at first, the head always with them; then both are trained."""
    model = run.put(SmallNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in run.steps(run.count * 2):
        x, y = images(run)
        with torch.set_grad_enabled(step >= run.count):
            features = model.backbone(x)
        out = model.head(features)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        run.see(loss=loss, features=features, out=out)
        optimizer.step()
        run.see(model=model)


@program(tags="evaluation conv inplace")
def evaluation_in_between(run: Run) -> None:
    """Evaluation without gradients, in inference mode, and with gradients that nobody asks for, between steps."""
    model = run.put(SmallNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    kinds = [torch.no_grad, torch.inference_mode, torch.enable_grad]
    for step in run.steps():
        x, y = images(run)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.see(loss=loss, model=model)
        model.eval()
        with kinds[step % 3]():
            for number in range(3):
                run.see(**{f"out_{number}": model(run.randn(4, 3, 16, 16))})
        model.train()


@program(tags="evaluation inplace")
def mostly_evaluation(run: Run) -> None:
    """Many calls without gradients, so that they are proven, then training steps of the same modules."""
    model = run.put(nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps(run.count * 4):
        x = run.randn(4, 8)
        if step % 8 != 7:
            with torch.no_grad():
                run.see(out=model(x))
            continue
        loss = F.cross_entropy(model(x), run.randint(3, 4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.see(loss=loss, model=model)


@program(tags="memory conv inplace")
def batches_of_other_sizes(run: Run) -> None:
    """Batch and image sizes change from step to step, and the last batch is small."""
    model = run.put(SmallNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps(run.count * 2):
        x, y = images(run, size=(16, 16, 20)[step % 3], count=2 if step % 4 == 3 else 4)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.see(loss=loss, model=model)


@program(tags="state conv inplace")
def save_and_load(run: Run) -> None:
    """Checkpoints of model and optimizer that are loaded again in the middle."""
    model = run.put(SmallNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    kept: Any = None
    for step in run.steps(run.count * 2):
        x, y = images(run)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.see(loss=loss, model=model, optimizer=optimizer)
        if step % 16 == 7:
            kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        if step % 16 == 15:
            model.load_state_dict(kept[0], assign=step > run.count)
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            optimizer.load_state_dict(kept[1])
