"""What the scripts of this folder share: options, the time of their steps, and the line that they print at the end. The rest
of a script is what a user writes, and nothing here knows of Grape.

The line, JSON: {"first_30_ms", "steady_ms_per_step", "last_loss", "losses", "digest"}. `losses` are exact, as hexadecimal
numbers. The digest has a checksum for each tensor that the script leaves behind, and for random numbers drawn afterwards.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Iterable, Optional

import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "bench"))

import train_loop  # noqa: E402
import train_programs  # noqa: E402

FIRST = 30  # steps that are timed on their own
LOSS_EVERY = 10  # steps


def options(about: Optional[str]) -> argparse.Namespace:
    """The command line's; seeds are fixed by it, too."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="optimizer steps (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="a tiny model of the same kind, to try it without a GPU")
    parser.add_argument("--deterministic", action="store_true", help="deterministic algorithms only")
    found = parser.parse_args()
    if found.steps < 2:
        parser.error("--steps must be 2 or more")
    train_programs.seed_everything(0)
    if found.deterministic:
        train_programs.be_deterministic()
    return found


class Watch:
    """The time of the first steps and of the second half of all steps. The loop is synchronised where these begin and end,
    and nowhere else."""

    def __init__(self, steps: int) -> None:
        self.steps, self.first = steps, min(FIRST, steps - 1)
        self.half = max(steps // 2, self.first)
        self.done = 0
        self.at: dict[int, float] = {}
        self.losses: list[torch.Tensor] = []

    def mark(self) -> None:
        torch.cuda.synchronize()
        self.at[self.done] = time.perf_counter()

    def start(self) -> None:
        self.mark()

    def step(self, loss: Optional[torch.Tensor] = None) -> None:
        """At the end of an optimizer step."""
        self.done += 1
        if loss is not None and self.done % LOSS_EVERY == 0:
            self.losses.append(loss.detach())
        if self.done in (self.first, self.half, self.steps):
            self.mark()

    def times(self) -> dict[str, float]:
        steady = (self.at[self.steps] - self.at[self.half]) / (self.steps - self.half)
        return {"first_30_ms": 1000 * (self.at[self.first] - self.at[0]), "steady_ms_per_step": 1000 * steady}


def state_of(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"{number} {name}": value
        for number, one in enumerate(optimizer.state.values())
        for name, value in one.items()
        if isinstance(value, torch.Tensor)
    }


def digest(models: dict[str, nn.Module], optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, dict[str, int]]:
    """Checksums by kind and name. Gradients are only those that the script's last step left."""
    found: dict[str, dict[str, torch.Tensor]] = {"weights": {}, "gradients": {}, "buffers": {}, "optimizer": {}}
    for key, model in models.items():
        for name, parameter in model.named_parameters(prefix=key):
            found["weights"][name] = parameter
            if parameter.grad is not None:
                found["gradients"][name] = parameter.grad
        found["buffers"].update(model.named_buffers(prefix=key))
    for number, optimizer in enumerate(optimizers):
        found["optimizer"].update({f"{number} {name}": value for name, value in state_of(optimizer).items()})
    found["random"] = {"CPU": torch.get_rng_state(), "GPU": torch.cuda.get_rng_state()}
    found["drawn afterwards"] = train_loop.drawn_afterwards()
    return {kind: train_loop.numbers(tensors) for kind, tensors in found.items()}


def finish(
    watch: Watch,
    models: dict[str, nn.Module],
    optimizers: Iterable[torch.optim.Optimizer],
    losses: Iterable[float] = (),
) -> None:
    """Prints the line. `losses`: those that the script's own log has."""
    seen = [*losses, *(loss.item() for loss in watch.losses)]
    line = {
        **watch.times(), "last_loss": float(seen[-1]) if seen else None, "losses": [float(loss).hex() for loss in seen],
        "digest": digest(models, optimizers),
    }  # fmt: skip
    print(json.dumps(line), flush=True)
