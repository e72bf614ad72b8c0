"""The training scripts of workloads/, a step at a time, as speed.py times them."""

import itertools
import sys
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))

IMAGES = 1920  # of an epoch: its start, with new worker processes, comes every 120 steps


def gpt_train() -> Callable[[int], Any]:
    from gpt_train import Trainer  # noqa: PLC0415

    trainer = Trainer(foreach=True)
    return lambda _: trainer.step()


def wav2vec2_train() -> Callable[[int], Any]:
    from wav2vec2_train import Trainer  # noqa: PLC0415

    return Trainer().step


def dataloader() -> Callable[[int], Any]:
    from dataloader import Trainer, loader  # noqa: PLC0415

    trainer = Trainer()
    epochs = itertools.repeat(loader(IMAGES))
    batches = itertools.chain.from_iterable(epochs)
    return lambda _: trainer.step(*next(batches))


TRAINING = {"gpt_train": gpt_train, "wav2vec2_train": wav2vec2_train, "dataloader": dataloader}
