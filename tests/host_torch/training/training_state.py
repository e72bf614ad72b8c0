"""Calls that move the state that autograd keeps of a tensor, of the same objects and values in each step."""

from typing import Any, Callable, Optional

import torch
from common import F, Run, nn, program, see_step, see_tensors

Work = Callable[[torch.Tensor], Any]
SAME = 12  # so many steps have the same values; then the same objects get others
PLACES: dict[str, Optional[torch.Tensor]] = {"global": None}


def twice(grad: torch.Tensor) -> torch.Tensor:
    return grad * 2.0


WORKS: dict[str, Work] = {
    "nothing": lambda t: t.dim(),  # then the call is replayed
    "activation": lambda t: torch.relu_(t),
    "requires_grad": lambda t: t.requires_grad_(),
    "detach": lambda t: t.detach_(),
    "hook": lambda t: t.register_hook(twice),
    "retain_grad": lambda t: t.retain_grad(),
}


class Mover(nn.Module):
    """Moves the state of its second argument, of a global or of what it holds itself, and adds it to a result."""

    def __init__(self, work: Work, where: str) -> None:
        super().__init__()
        self.work, self.where, self.inner = work, where, nn.Linear(8, 8)
        self.held: Optional[torch.Tensor] = None
        self.register_buffer("noted", None)

    def forward(self, x: torch.Tensor, given: Optional[torch.Tensor]) -> torch.Tensor:
        t = {"argument": given, "global": PLACES["global"], "attribute": self.held, "buffer": self.noted}.get(self.where)
        t = self.inner.bias if self.where == "parameter" else t
        self.work(t)
        return torch.tanh(self.inner(x)) + t

    def moved(self, t: torch.Tensor) -> torch.Tensor:
        """Puts `t` where forward() looks for it; what is moved."""
        if self.where == "parameter":
            return self.inner.bias
        if self.where == "global":
            PLACES["global"] = t
        elif self.where == "attribute":
            self.held = t
        elif self.where == "buffer":
            self.noted = t
        return t


def put_back(t: torch.Tensor, source: torch.Tensor, what: str) -> None:
    """`t` is as it was before the first call: a leaf for requires_grad_() and of the module, else the result of a copy."""
    if t is not source:
        t.detach_()
    t.requires_grad_(t is source and what != "requires_grad")
    t._backward_hooks, t.grad = None, None
    if t is not source:
        with torch.set_grad_enabled(what != "requires_grad"):
            t.copy_(source)


def add_moved(what: str, where: str, back: bool = True) -> None:
    @program(tags="state row32", name=f"moved_{what}_of_{where}{'' if back else '_for_good'}")
    def moved(run: Run) -> None:
        first, mover, last = run.put(nn.Linear(8, 8)), run.put(Mover(WORKS[what], where)), run.put(nn.Linear(8, 4))
        every = nn.ModuleList([first, mover, last])
        optimizer = torch.optim.SGD(every.parameters(), lr=0.05)
        x, y, source = run.randn(6, 8), run.randn(6, 4), run.randn(6, 8).requires_grad_()
        t = mover.moved(torch.zeros(6, 8, device=run.device))
        for step in run.steps():
            if step >= SAME:
                with torch.no_grad():
                    x.copy_(run.randn(6, 8)), source.copy_(run.randn(6, 8))
            if back and what == "retain_grad":  # which nothing takes back
                t = mover.moved(source * 1.0)
            elif back or step == 0:
                put_back(t, t if t is mover.inner.bias else source, what)
            optimizer.param_groups[0]["lr"] = 0.05 if step >= SAME else 0.0
            out = mover(first(x), t if where == "argument" else None)
            see_tensors(run, after_the_call=t)
            loss = F.mse_loss(last(out), y)
            loss.backward(retain_graph=not back)
            see_step(run, loss, every, optimizer, out=out, t=t, source=source)
            source.grad = None

    kept = "" if back else ", and nobody puts it back"
    moved.__doc__ = f"A call moves the state of {'an' if where[0] == 'a' else 'a'} {where} ({what}){kept}"


for _what in WORKS:
    for _where in ("argument", "global", "attribute", "buffer"):
        add_moved(_what, _where)
for _what in ("requires_grad", "detach", "hook", "retain_grad"):
    add_moved(_what, "parameter")
for _where in ("argument", "global", "attribute"):
    add_moved("requires_grad", _where, back=False)
    add_moved("hook", _where, back=False)
    add_moved("retain_grad", _where, back=False)


def add_flag(value: bool) -> None:
    @program(tags="state row32", name=f"flags_{'raised' if value else 'dropped'}_inside")
    def flags(run: Run) -> None:
        class Flags(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner, self.steps = nn.Linear(8, 8), 0

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                self.inner.weight.requires_grad_(value)
                return torch.tanh(self.inner(x))

        first, model, last = run.put(nn.Linear(8, 8)), run.put(Flags()), run.put(nn.Linear(8, 4))
        every = nn.ModuleList([first, model, last])
        optimizer = torch.optim.SGD(every.parameters(), lr=0.05)
        for step in run.steps():
            if step % 5 == 4:
                model.inner.weight.requires_grad_(not value)
            out = model(first(run.randn(6, 8)))
            loss = F.mse_loss(last(out), run.randn(6, 4))
            loss.backward()
            see_step(run, loss, every, optimizer, out=out)

    flags.__doc__ = f"A call sets its weight's flag to {value}; in each fifth step it was not so before"


add_flag(True)
add_flag(False)
