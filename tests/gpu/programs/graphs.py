"""Programs on graphs, molecules, differential equations and Gaussian processes."""

from typing import Any, Iterator

import torch
from torch import nn
from torch.nn import functional as F

from bed import Run, listed

Results = Iterator[Any]


def edges_of(run: Run, nodes: int, degree: int = 6) -> torch.Tensor:
    return torch.randint(0, nodes, (2, nodes * degree), generator=run.data).to(run.device)


@listed("torch_geometric", units=120)
def gat_learns_on_one_graph(run: Run) -> Results:
    """torch_geometric's GAT learns on one graph, and is evaluated in each epoch"""
    from torch_geometric.nn import GAT  # noqa: PLC0415

    model = run.put(GAT(64, 32, 2, 7, dropout=0.5), train=True)
    optimizer = torch.optim.Adam(model.parameters(), 0.005, weight_decay=5e-4)
    nodes = run.size(2000, 50)
    x, edges, y = run.randn(nodes, 64), edges_of(run, nodes), run.tokens(nodes, below=11) - 4
    while True:
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edges)[: nodes // 2], y[: nodes // 2]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            found = model(x, edges).argmax(-1)
        yield int((found == y)[nodes // 2 :].sum())


@listed("torch_geometric", units=100)
def gin_sorts_molecules(run: Run) -> Results:
    """torch_geometric's GIN learns on batches of small graphs, each batch of another size"""
    from torch_geometric.data import Batch, Data  # noqa: PLC0415
    from torch_geometric.nn import GIN, global_add_pool  # noqa: PLC0415

    model = run.put(GIN(16, 64, 4, 2, norm="batch_norm"), train=True)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    while True:
        sizes = [run.choice.randint(8, 30) for _ in range(16)]
        graphs = [
            Data(torch.randn(n, 16, generator=run.data), torch.randint(0, n, (2, 3 * n), generator=run.data), y=torch.tensor([n % 2]))
            for n in sizes
        ]
        batch = Batch.from_data_list(graphs).to(run.device)
        loss = F.cross_entropy(global_add_pool(model(batch.x, batch.edge_index), batch.batch), batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


@listed("torch_geometric", units=60)
def sage_evaluates_samples(run: Run) -> Results:
    """torch_geometric's GraphSAGE on sampled neighbourhoods of mixed sizes"""
    from torch_geometric.nn import GraphSAGE  # noqa: PLC0415

    model = run.put(GraphSAGE(32, 64, 3, 8))
    while True:
        nodes = run.choice.randint(100, 400)
        with torch.inference_mode():
            yield model(run.randn(nodes, 32), edges_of(run, nodes)).argmax(-1).cpu()


class Energies(nn.Module):
    """Of atoms, by continuous filters over the pairs that are near."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        from torch_geometric.nn.models.schnet import GaussianSmearing, InteractionBlock  # noqa: PLC0415

        self.kinds = nn.Embedding(10, width)
        self.smear = GaussianSmearing(0.0, 5.0, 25)
        self.blocks = nn.ModuleList(InteractionBlock(width, 25, width, 5.0) for _ in range(blocks))
        self.out = nn.Sequential(nn.Linear(width, width // 2), nn.SiLU(), nn.Linear(width // 2, 1))

    def forward(self, kinds: torch.Tensor, places: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        h, distance = self.kinds(kinds), (places[edges[0]] - places[edges[1]]).norm(dim=-1)
        for block in self.blocks:
            h = h + block(h, edges, distance, self.smear(distance))
        return self.out(h).sum()


@listed("torch_geometric", units=150)
def schnet_dynamics(run: Run) -> Results:
    """Atoms move by the forces of SchNet's blocks of torch_geometric; which pairs are near changes"""
    atoms = run.size(32, 6)
    model = run.put(Energies(run.size(64, 16), 3))
    kinds, places, speeds = run.tokens(atoms, below=10), run.randn(atoms, 3) * 2, run.randn(atoms, 3) * 0.1
    while True:
        places.requires_grad_()
        near = (torch.cdist(places.detach(), places.detach()) < 4.0).fill_diagonal_(False)
        energy = model(kinds, places, near.nonzero().T)
        (force,) = torch.autograd.grad(-energy, places)
        speeds = speeds + 0.01 * force
        places = (places + 0.01 * speeds).detach()
        yield energy.item()


@listed("gpytorch", units=80)
def gp_fits(run: Run) -> Results:
    """gpytorch fits an exact Gaussian process, and predicts after every ten steps"""
    import gpytorch  # noqa: PLC0415

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=4))

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x = run.randn(run.size(300, 20), 4)
    y = x.sin().sum(-1)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(run.device)
    model = run.put(Exact(x, y, likelihood), train=True)
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    step = 0
    while True:
        model.train()
        likelihood.train()
        optimizer.zero_grad()
        loss = -marginal(model(x), y)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 10 == 0:
            model.eval()
            likelihood.eval()
            with torch.no_grad():
                yield loss.item(), likelihood(model(run.randn(20, 4))).mean.cpu()
        else:
            yield loss.item()


class Field(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.net(y**3)


def equation(run: Run, adjoint: bool, method: str) -> Results:
    import torchdiffeq  # noqa: PLC0415

    field = run.put(Field(64), train=True)
    optimizer = torch.optim.RMSprop(field.parameters(), 1e-3)
    solve = torchdiffeq.odeint_adjoint if adjoint else torchdiffeq.odeint
    times = torch.linspace(0.0, 1.0, 10, device=run.device)
    while True:
        start = run.randn(16, 2)
        optimizer.zero_grad()
        loss = (solve(field, start, times, method=method) - start).abs().mean()
        loss.backward()
        optimizer.step()
        yield loss.item()


@listed("torchdiffeq", units=25)
def ode_learns(run: Run) -> Results:
    """torchdiffeq learns a field by dopri5, whose steps the host chooses"""
    yield from equation(run, False, "dopri5")


@listed("torchdiffeq", units=20)
def ode_learns_by_adjoint(run: Run) -> Results:
    """torchdiffeq learns a field by the adjoint method, with fixed steps"""
    yield from equation(run, True, "rk4")
