"""Results that are views of memory which the call made: their bases, what is done with them afterwards, and passes over them."""

from collections.abc import Callable
from typing import Any

import torch
from common import F, Run, autocast, batch, nn, program, see_step, see_tensors, sgd
from potentials import Dynamics, Potential

Make = Callable[[nn.Module, torch.Tensor], Any]
Use = Callable[[int, Any], Any]


class Viewing(nn.Module):
    """`make(module, h)` of what a layer gives."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self.first, self.beside, self.make = nn.Linear(8, 8), nn.Linear(8, 8), make

    def forward(self, x: torch.Tensor) -> Any:
        return self.make(self, self.first(x))


def written_before(module: nn.Module, h: torch.Tensor) -> torch.Tensor:
    return h.mul_(0.5).relu_().view(3, 2, 8)


def written_after(module: nn.Module, h: torch.Tensor) -> torch.Tensor:
    view = h.view(3, 2, 8)
    h.mul_(0.5)
    return view


def view_written(module: nn.Module, h: torch.Tensor) -> torch.Tensor:
    view = h[1:5]
    view.tanh_()
    return view


def features_and_logits(module: nn.Module, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    features = h.view(3, 2, 8)
    return features, module.beside(features.tanh())


def base_saved(module: nn.Module, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return h.view(3, 2, 8), h * module.beside(h)


def base_is_a_result(module: nn.Module, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return h[:, 2:6], h, h.t()


MAKES: dict[str, Make] = {
    "view": lambda m, h: h.view(3, 2, 8),
    "transposed": lambda m, h: h.t(),
    "turned_and_cut": lambda m, h: h.view(3, 2, 8).permute(1, 2, 0)[:, 1:7],
    "selected": lambda m, h: h[2],
    "with_new_dimensions": lambda m, h: h.unsqueeze(1).squeeze(1).unsqueeze(0),
    "expanded": lambda m, h: h.unsqueeze(0).expand(2, 6, 8),
    "diagonal": lambda m, h: h.diagonal(),
    "unfolded": lambda m, h: h.unfold(1, 4, 2),
    "strided": lambda m, h: h.as_strided((4, 4), (8, 2), 3),
    "parts_of_numbers": lambda m, h: torch.view_as_real(torch.complex(h, m.beside(h))),
    "linear_of_rows": lambda m, h: m.beside(h.view(3, 2, 8)),
    "after_dropout": lambda m, h: F.dropout(h, 0.3, m.training).view(2, 3, 8),
    "two": lambda m, h: (h[:3], h.t()),
    "of_two_bases": lambda m, h: (h.view(3, 2, 8), m.beside(h).t()),
    "beside_its_copy": lambda m, h: (h.t(), h.detach()),
    "pieces": lambda m, h: h.chunk(2, 1),
    "unbound": lambda m, h: h.unbind(1)[2:4],
    "one_piece": lambda m, h: h.split(3)[1],
    "in_a_dictionary": lambda m, h: {"view": h.view(2, 3, 8), "own": m.beside(h)},
    "written_before": written_before,
    "written_after": written_after,
    "view_written": view_written,
    "features_and_logits": features_and_logits,
    "base_saved": base_saved,
    "base_is_a_result": base_is_a_result,
}


def parts_of(found: Any) -> list[torch.Tensor]:
    if isinstance(found, torch.Tensor):
        return [found]
    return list(found.values() if isinstance(found, dict) else found)


def loss_of(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([part.sin().mean() * (i + 1) for i, part in enumerate(parts)]).sum()


def train(run: Run, make: Make, use: Use, precise: bool = True) -> None:
    """`use(step, parts)` gives other parts, or a loss and what else is seen; or None."""
    before, model = run.put(nn.Linear(8, 8)), run.put(Viewing(make))
    every = nn.ModuleList([before, model])
    optimizer = sgd(every)
    for step in run.steps():
        x, _ = batch(run)
        more: Any = None
        with autocast(enabled=not precise):
            parts = parts_of(model(before(x)))
        see_tensors(run, parts=parts, bases=[part._base for part in parts if part._is_view()])
        run.see(names=[[part.grad_fn.name(), part._base.grad_fn.name()] for part in parts if part._is_view()])
        try:
            found = use(step, parts)
            parts, more = found if isinstance(found, tuple) else (found or parts, None)
            loss = loss_of(parts) if isinstance(parts, list) else parts
            loss.backward()
        except RuntimeError as error:
            run.see(error=str(error))
            every.zero_grad()
            loss = torch.zeros(())
        see_step(run, loss, every, optimizer, more=more)


def only(step: int, parts: list[torch.Tensor]) -> Any:
    return None


def worked_on(step: int, parts: list[torch.Tensor]) -> Any:
    if step > 3:
        parts[0].mul_(2.0)
    return parts[:1] if step % 2 else parts


def base_worked_on(step: int, parts: list[torch.Tensor]) -> Any:
    if step > 3 and parts[0]._is_view():
        parts[0]._base.add_(1.0)
    return None


def base_used(step: int, parts: list[torch.Tensor]) -> Any:
    return [*parts, parts[0]._base] if step > 3 and parts[0]._is_view() else None


def retained(step: int, parts: list[torch.Tensor]) -> Any:
    if step % 2 or step > 8:
        parts[0].retain_grad()
    if step > 10 and parts[0]._is_view():
        parts[0]._base.retain_grad()
    loss = loss_of(parts)
    loss.backward(retain_graph=True)
    return loss, [parts[0].grad if parts[0].retains_grad else None]


def hooked(step: int, parts: list[torch.Tensor]) -> Any:
    if step > 3:
        parts[-1].register_hook(lambda grad: grad * 2.0)
    return None


def partial(step: int, parts: list[torch.Tensor]) -> Any:
    loss = loss_of(parts)
    return loss, list(torch.autograd.grad(loss, [parts[0]], retain_graph=True)) if step > 6 else None


def differentiated(step: int, parts: list[torch.Tensor]) -> Any:
    loss = loss_of(parts)
    if step > 6:
        [slope] = torch.autograd.grad(loss, [parts[0]], create_graph=True)
        loss = loss + slope.square().sum()
    return loss, None


def first_alone(step: int, parts: list[torch.Tensor]) -> Any:
    return parts[:1] if step > 4 else None


def detached(step: int, parts: list[torch.Tensor]) -> Any:
    if step > 3:
        parts[0].detach_()
    return None


def twice(step: int, parts: list[torch.Tensor]) -> Any:
    loss = loss_of(parts)
    loss.backward(retain_graph=step % 3 != 2)
    return loss, None


USES: dict[str, Use] = {
    use.__name__: use
    for use in (worked_on, base_worked_on, base_used, retained, hooked, partial, differentiated, first_alone, detached, twice)
}


def add(name: str, make: Make, use: Use, precise: bool = True) -> None:
    @program(tags="views results", name=name)
    def viewed(run: Run) -> None:
        """Results that are views."""
        train(run, make, use, precise)


for label, each in MAKES.items():
    add(f"viewed_{label}", each, only)
for label in ("view", "two", "pieces", "base_is_a_result", "linear_of_rows"):
    for how, use in USES.items():
        add(f"viewed_{label}_{how}", MAKES[label], use)
for label in ("turned_and_cut", "features_and_logits", "written_before", "base_saved"):
    for how in ("worked_on", "retained", "differentiated"):
        add(f"viewed_{label}_{how}", MAKES[label], USES[how])
add("viewed_linear_of_rows_autocast", MAKES["linear_of_rows"], only, precise=False)
add("viewed_features_and_logits_autocast", MAKES["features_and_logits"], only, precise=False)


ENERGIES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "squeezed": lambda atoms: atoms.sum(0).squeeze(-1),
    "flat": lambda atoms: atoms.sum(0).view(-1)[:1],
    "of_a_row": lambda atoms: (atoms.sum(0, keepdim=True) * 2.0)[0],
}


def add_energy(name: str, view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    @program(tags="forces views results", name=f"viewed_energy_{name}")
    def energies(run: Run) -> None:
        """An energy that is a view, beside its forces: the pass inside of the call has freed its graph."""

        def forces(model: Potential, x: torch.Tensor) -> Any:
            x = x.detach().requires_grad_()
            energy = view(model.net(x) * (x * x).sum(1, keepdim=True))
            return energy, -torch.autograd.grad(energy.sum(), x)[0]

        model = run.put(Potential(forces))
        dynamics = Dynamics(run)
        for step in run.steps():
            energy = dynamics.step(model)
            see_tensors(run, energy=energy, base=energy._base)
            if step % 4 == 3:
                energy.mul_(2.0)
            with run.expect_error("backward"):
                (energy * 3).sum().backward()
            with run.expect_error("gradients of weights"):
                run.see(found=torch.autograd.grad(energy.sum(), list(model.parameters()), allow_unused=True))
            with run.expect_error("of itself"):
                run.see(itself=torch.autograd.grad((energy * 2).sum(), energy)[0])
            run.see(model=model, detached=energy.detach(), number=energy.sum().item())


for label, each in ENERGIES.items():
    add_energy(label, each)
