"""Nets on graphs, of torch_geometric."""

from typing import Any, Callable

import torch
from bed import Run, program, train
from torch import nn
from torch.nn import functional as F

NO_MASKS = "assignment of a tensor through a boolean mask is not simulated"
NODES, FEATURES, WIDTH, CLASSES = 12, 6, 8, 3


def graph(run: Run) -> tuple[torch.Tensor, ...]:
    edges = run.randint(NODES, 2, 30)
    return run.randn(NODES, FEATURES), torch.cat([edges, edges.flip(0)], 1), run.randint(CLASSES, NODES)


def classify_nodes(model: nn.Module, x: torch.Tensor, edges: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    out = model(x, edges)
    return F.cross_entropy(out, y), out


def convolutions() -> Any:
    import torch_geometric.nn  # noqa: PLC0415

    return torch_geometric.nn


class Net(nn.Module):
    def __init__(self, make: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = make(FEATURES, WIDTH), make(WIDTH, CLASSES)
        self.act, self.drop = nn.ReLU(inplace=True), nn.Dropout(0.3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return self.second(self.drop(self.act(self.first(x, edges))), edges)


def gin(a: int, b: int) -> nn.Module:
    net = nn.Sequential(nn.Linear(a, b), nn.ReLU(inplace=True), nn.Linear(b, b))
    return convolutions().GINConv(net, train_eps=True)


def edge_conv(a: int, b: int) -> nn.Module:
    net = nn.Sequential(nn.Linear(2 * a, b), nn.ReLU(inplace=True), nn.Linear(b, b))
    return convolutions().EdgeConv(net, aggr="add")


KINDS: dict[str, Callable[[int, int], nn.Module]] = {
    "gcn": lambda a, b: convolutions().GCNConv(a, b),
    "gcn_cached": lambda a, b: convolutions().GCNConv(a, b, cached=True),
    "gat": lambda a, b: convolutions().GATConv(a, b, heads=2, concat=False, dropout=0.2),
    "gatv2": lambda a, b: convolutions().GATv2Conv(a, b, heads=2, concat=False),
    "gin": gin,
    "sage": lambda a, b: convolutions().SAGEConv(a, b, aggr="max"),
    "graph_transformer": lambda a, b: convolutions().TransformerConv(a, b, heads=2, concat=False),
    "edge_conv": edge_conv,
    "chebyshev": lambda a, b: convolutions().ChebConv(a, b, K=3),
}


def add_graph(name: str, make: Callable[[int, int], nn.Module]) -> None:
    only = NO_MASKS if name == "chebyshev" else ""

    @program("torch_geometric", tags="gnn inplace", name=f"graph_{name}", gpu_only=only)
    def net(run: Run) -> None:
        model = run.put(Net(make))
        x, edges, y = graph(run)
        batch = lambda: (x if name == "gcn_cached" else run.randn(NODES, FEATURES), edges, y)  # noqa: E731
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        train(run, model, batch, classify_nodes, optimizer, steps=run.count * 2)

    net.__doc__ = f"two layers of {name}, in-place ReLU"


for _name, _make in KINDS.items():
    add_graph(_name, _make)


@program("torch_geometric", tags="gnn")
def graph_classification(run: Run) -> None:
    """Batches of graphs of other sizes each step, with norm and pooling."""
    from torch_geometric.data import Batch, Data  # noqa: PLC0415

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.norm = Net(KINDS["gcn"]), convolutions().BatchNorm(CLASSES)
            self.head = nn.Linear(CLASSES, 2)

        def forward(self, batch: Any) -> torch.Tensor:
            h = self.norm(self.net(batch.x, batch.edge_index))
            return self.head(convolutions().global_mean_pool(h, batch.batch))

    def data() -> Any:
        nodes = int(torch.randint(4, 9, (), generator=run.data))
        return Data(x=run.randn(nodes, FEATURES), edge_index=run.randint(nodes, 2, 12), y=run.randint(2, 1))

    def loss(model: nn.Module, batch: Any) -> tuple[torch.Tensor, ...]:
        out = model(batch)
        return F.cross_entropy(out, batch.y), out

    model = run.put(Classifier())
    train(run, model, lambda: (Batch.from_data_list([data() for _ in range(3)]),), loss)


@program("torch_geometric", tags="gnn")
def graph_potential(run: Run) -> None:
    """SchNet: energies, and forces by a backward pass inside of the loss."""
    from torch_geometric.nn.models import SchNet  # noqa: PLC0415

    def all_pairs(position: torch.Tensor, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        number = torch.arange(len(position), device=position.device)
        a, b = torch.meshgrid(number, number, indexing="ij")
        edges = torch.stack([a[a != b], b[a != b]])
        return edges, (position[edges[0]] - position[edges[1]]).norm(dim=-1)

    model = run.put(SchNet(16, 16, 2, 8, interaction_graph=all_pairs))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    kinds = run.randint(5, 6) + 1
    for _ in run.steps():
        position = run.randn(6, 3).requires_grad_()
        energy = model(kinds, position)
        (force,) = torch.autograd.grad(energy.sum(), position, create_graph=True)
        loss = energy.pow(2).mean() + force.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        run.see(loss=loss, energy=energy, force=force, position=position)
        optimizer.step()
        run.see(model=model)
