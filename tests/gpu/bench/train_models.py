"""Models of train_programs.py that come from no library: a small GPT, and a potential of atoms."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.into, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.expand, self.contract = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in self.into(x).split(width, dim=2)
        )
        rate = self.rate if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=rate, is_causal=True)
        return self.dropout(self.out(mixed.transpose(1, 2).contiguous().view(batch, length, width)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.dropout(self.contract(F.gelu(self.expand(self.norm2(x)))))


class GPT(nn.Module):
    """As in nanoGPT; the head is the embedding."""

    def __init__(self, words: int, length: int, layers: int, heads: int, width: int, dropout: float) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width, bias=False), nn.Linear(width, words, bias=False)
        self.head.weight = self.tokens.weight
        for name, weight in self.named_parameters():
            if weight.dim() >= 2:
                scale = math.sqrt(2 * layers) if name.endswith(("out.weight", "contract.weight")) else 1.0
                nn.init.normal_(weight, std=0.02 / scale)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.dropout(self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device)))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def pairs_of(atoms: int) -> torch.Tensor:
    """All ordered pairs of different atoms."""
    first, second = torch.meshgrid(torch.arange(atoms), torch.arange(atoms), indexing="ij")
    apart = first != second
    return torch.stack([first[apart], second[apart]])


class Interaction(nn.Module):
    """A continuous-filter convolution, and two layers for each atom."""

    def __init__(self, width: int, gaussians: int) -> None:
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(gaussians, width), nn.Softplus(), nn.Linear(width, width))
        self.into = nn.Linear(width, width, bias=False)
        self.out = nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, width))

    def forward(self, x: torch.Tensor, edges: torch.Tensor, expanded: torch.Tensor, cutoff: torch.Tensor) -> torch.Tensor:
        messages = self.into(x)[edges[1]] * self.filter(expanded) * cutoff[:, None]
        return x + self.out(torch.zeros_like(x).index_add(0, edges[0], messages))


class Potential(nn.Module):
    """The energy of atoms, and the forces as its gradient, both detached."""

    def __init__(self, width: int, interactions: int, gaussians: int = 50, radius: float = 5.0) -> None:
        super().__init__()
        self.radius = radius
        self.kinds = nn.Embedding(100, width)
        self.register_buffer("centers", torch.linspace(0.0, radius, gaussians))
        self.interactions = nn.ModuleList(Interaction(width, gaussians) for _ in range(interactions))
        self.energy = nn.Sequential(nn.Linear(width, width // 2), nn.Softplus(), nn.Linear(width // 2, 1))

    def forward(self, kinds: torch.Tensor, positions: torch.Tensor, edges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        positions = positions.detach().requires_grad_()
        distance = (positions[edges[0]] - positions[edges[1]]).norm(dim=1)
        step = self.centers[1] - self.centers[0]
        expanded = torch.exp(-0.5 * ((distance[:, None] - self.centers) / step) ** 2)
        cutoff = 0.5 * (torch.cos(distance * (math.pi / self.radius)) + 1) * (distance < self.radius)
        x = self.kinds(kinds)
        for interaction in self.interactions:
            x = interaction(x, edges, expanded, cutoff)
        energy = self.energy(x).sum()
        (gradient,) = torch.autograd.grad(energy, positions)
        return energy.detach(), -gradient
