#!/usr/bin/env python3
"""A small residual network for images, trained by Lightning's Trainer with validation and a scheduler."""

import tempfile
from typing import Any

import lightning
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import common

CLASSES = 10


class Residual(nn.Module):
    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.short = nn.Conv2d(into, out, 1, stride, bias=False) if (into, stride) != (out, 1) else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inner)) + self.short(x))


class Classifier(lightning.LightningModule):
    def __init__(self, width: int, blocks: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        for stage in range(3):
            into, out = width << max(0, stage - 1), width << stage
            layers.append(Residual(into, out, 2 if stage else 1))
            layers += [Residual(out, out, 1) for _ in range(blocks - 1)]
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width << 2, CLASSES))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        scores = self(batch[0])
        self.log("val_loss", F.cross_entropy(scores, batch[1]))
        self.log("val_accuracy", (scores.argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=self.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class Clock(lightning.Callback):
    def __init__(self, watch: common.Watch) -> None:
        self.watch = watch
        self.validated: list[float] = []

    def on_train_start(self, *_: Any) -> None:
        self.watch.start()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        self.watch.step(outputs["loss"])

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        self.validated += [float(trainer.callback_metrics[name]) for name in ("val_loss", "val_accuracy")]


def loader(count: int, side: int, batch: int, seed: int, shuffle: bool) -> DataLoader:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, side, side, generator=generator)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return DataLoader(TensorDataset(images, labels), batch_size=batch, shuffle=shuffle, pin_memory=True)


def main() -> None:
    options = common.options(__doc__)
    width, blocks, side, batch = (4, 1, 8, 4) if options.small else (32, 3, 32, 32)
    epoch = max(2, options.steps // 5)
    lightning.seed_everything(0, verbose=False)
    model = Classifier(width, blocks, options.steps)
    clock = Clock(common.Watch(options.steps))
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_steps=options.steps, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder, callbacks=[clock],
            deterministic="warn" if options.deterministic else None,
        )  # fmt: skip
        trainer.fit(model, loader(epoch * batch, side, batch, 1, True), loader(8 * batch, side, batch, 2, False))
    common.finish(clock.watch, {"model": model}, trainer.optimizers, clock.validated)


if __name__ == "__main__":
    main()
