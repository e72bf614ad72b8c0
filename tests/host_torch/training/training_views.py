"""Views inside of a call whose base is worked on in place: their nodes are made anew when somebody uses them, later than the
nodes that use them, and work on a view is a node that has another one inside (CopySlices)."""

from typing import Callable

import torch
from common import F, Run, batch, nn, program, see_step

Work = Callable[[nn.Module, torch.Tensor], torch.Tensor]


class Body(nn.Module):
    """`work(module, h)` between two layers."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.first, self.beside, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.work = work

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.work(self, self.first(x) * 1.5))


def base_after_view(module: nn.Module, h: torch.Tensor) -> torch.Tensor:
    view = h.view(-1, 2, 4)
    h.mul_(2.0)
    return view.flatten(1).tanh()


def two_views(module: nn.Module, h: torch.Tensor) -> torch.Tensor:
    left, right = h[:, :4], h[:, 4:]
    left.mul_(2.0)
    right.add_(left.detach())
    return torch.cat((right, left), 1).sin()


def views_of_views(module: nn.Module, h: torch.Tensor) -> torch.Tensor:
    rows = h[1:]
    part = rows[:, 2:6]
    h.mul_(0.5)
    part.sigmoid_()
    return h + F.pad(rows * module.beside(rows), (0, 0, 1, 0))


def copied_parts(module: nn.Module, h: torch.Tensor) -> torch.Tensor:
    h[:, :3].mul_(2.0)
    h[:, 3:5] = module.beside(h.detach().clone())[:, :2]
    h[:, 7].zero_()
    return h


def dropout_on_flattened(module: nn.Module, h: torch.Tensor) -> torch.Tensor:
    flat = torch.flatten((h * 2).view(-1, 2, 4), 1)
    return F.dropout(flat, 0.4, True, True)


def transposed(module: nn.Module, h: torch.Tensor) -> torch.Tensor:
    turned = h.t()
    turned[2:4].exp_()
    return module.beside(h) + turned.t().contiguous()


WORKS = (base_after_view, two_views, views_of_views, copied_parts, dropout_on_flattened, transposed)


def train(run: Run, work: Work, unforeseen: bool) -> None:
    model = run.put(Body(work))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for step in run.steps():
        x, y = batch(run)
        x.requires_grad_(step % 2 == 1)
        out = model(x)
        loss = F.mse_loss(out, y)
        if unforeseen and step > 10:
            if step % 2:
                [slope] = torch.autograd.grad(loss, [x], create_graph=True)
                loss = loss + slope.square().sum()
            else:
                run.see(part=list(torch.autograd.grad(loss, [model.beside.weight, model.first.bias], retain_graph=True,
                                                      allow_unused=True)))
        try:
            loss.backward()
        except RuntimeError as error:  # a graph of a node inside of another one may be freed too early, in eager as well
            run.see(error=str(error))
        see_step(run, loss, model, optimizer, out=out, x=x)


for each in WORKS:

    @program(tags="views", name=f"views_{each.__name__}")
    def foreseen(run: Run, work: Work = each) -> None:
        """Work on views inside of the call."""
        train(run, work, unforeseen=False)

    @program(tags="views second partial", name=f"views_{each.__name__}_unforeseen")
    def unforeseen(run: Run, work: Work = each) -> None:
        """The same, and passes that make a graph, or ask for a part, once it is replayed."""
        train(run, work, unforeseen=True)
