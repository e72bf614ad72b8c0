"""What the training programs share: small nets, a training loop with new tensors in each step, and traits of tensors."""

import sys
from pathlib import Path
from typing import Any, Callable, Optional

sys.path.append(str(Path(__file__).resolve().parents[2] / "sweep"))
import torch  # noqa: E402
import torch._dynamo  # noqa: E402, F401 (optimizers import it at their first step: once, before the server forks)
from bed import Run, as_tuple, program  # noqa: E402, F401
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

Loss = Callable[..., Any]


def only_from(minor: int, why: str) -> str:
    """Why a program cannot run with a PyTorch before 2.`minor`; empty: this one is not."""
    return why if tuple(map(int, torch.__version__.split(".")[:2])) < (2, minor) else ""


NO_GRADIENTS = only_from(11, "casts that are made without gradients have none later")


def net(run: Run, *more: nn.Module, width: int = 8, out: int = 4, act: Any = nn.Tanh) -> Any:
    """linear, activation, the modules of `more`, linear; in training on the device."""
    return run.put(nn.Sequential(nn.Linear(8, width), act(), *more, nn.Linear(width, out)))


class Heads(nn.Module):
    """A body with two results."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.body(x).tanh()
        return self.one(h), self.other(h)


def autocast(dtype: torch.dtype = torch.bfloat16, **more: Any) -> Any:
    return torch.autocast("cuda", dtype=dtype, **more)


def sgd(model: nn.Module, **more: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, **more)


def sgd_with_momentum(model: nn.Module) -> torch.optim.Optimizer:
    return sgd(model, momentum=0.9)


def batch(run: Run) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets in new tensors."""
    return run.randn(6, 8), run.randn(6, 4)


def squares(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
    out = model(x)
    return F.mse_loss(out, y), out


def fit(
    run: Run,
    model: nn.Module,
    optimizer: Optional[torch.optim.Optimizer] = None,
    loss_of: Loss = squares,
    before: Optional[Callable[[int], None]] = None,
    after: Optional[Callable[[int], None]] = None,
    make: Callable[[Run], tuple[Any, ...]] = batch,
) -> None:
    """`loss_of(model, *batch)` gives a loss, or a loss and what else is seen. `before` and `after` are called in each step."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        if before is not None:
            before(step)
        given = make(run)
        loss, *more = as_tuple(loss_of(model, *given))
        see_tensors(run, loss=loss, **{f"out{i}": x for i, x in enumerate(more)}, **{f"in{i}": x for i, x in enumerate(given)})
        loss.backward()
        run.see(model=model)
        optimizer.step()
        optimizer.zero_grad()
        if after is not None:
            after(step)
        run.see(weights=model, optimizer=optimizer)


def traits(x: torch.Tensor) -> str:
    """What a program can see of a tensor besides what bed.state_of() gives."""
    words = [f"output_nr {x.output_nr}", f"requires_grad {x.requires_grad}", f"is_leaf {x.is_leaf}", f"version {x._version}"]
    words += [f"view of {tuple(x._base.shape)}" if x._is_view() else "no view", f"offset {x.storage_offset()}"]
    words += [f"{len(x._backward_hooks or ())} hooks", f"attributes {sorted(vars(x))}"]
    return " ".join(words)


def see_tensors(run: Run, **values: Any) -> None:
    """Records values, and the traits of tensors, those in lists and dictionaries included."""
    for name, value in values.items():
        run.see(**{name: value})
        parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else [("", value)]
        for key, part in parts:
            if isinstance(part, torch.Tensor) and not part.is_inference():
                run.see(**{f"traits of {name} {key}": traits(part)})


def see_step(run: Run, loss: torch.Tensor, model: nn.Module, optimizer: torch.optim.Optimizer, **values: Any) -> None:
    """Records the loss, the gradients and `values`; steps; records the weights."""
    see_tensors(run, loss=loss, **values)
    run.see(model=model)
    optimizer.step()
    optimizer.zero_grad()
    run.see(weights=model, optimizer=optimizer)


def see_squares(run: Run, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A step on a batch's squared differences, recorded."""
    loss, out = squares(model, *batch(run))
    loss.backward()
    see_step(run, loss, model, optimizer, out=out)
