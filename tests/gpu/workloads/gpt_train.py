"""A small GPT with dropout: training in bfloat16 autocast, once with foreach AdamW and once with the fused one."""

import torch
from torch import nn
from torch.nn import functional

import outputs


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        weights = query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        weights = self.dropout(weights.masked_fill(~mask, float("-inf")).softmax(dim=-1))
        return self.project((weights @ value).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attend(self.norm1(x)))
        return x + self.dropout(self.contract(functional.gelu(self.expand(self.norm2(x)))))


class SmallGPT(nn.Module):
    def __init__(self, vocabulary: int = 4096, width: int = 256, layers: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(256, width)
        self.blocks = nn.ModuleList(Block(width, 4, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Trainer:
    def __init__(self, **adamw: bool) -> None:
        torch.manual_seed(8)
        self.model = SmallGPT().cuda().train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, **adamw)

    def step(self) -> torch.Tensor:
        ids = torch.randint(0, 4096, (8, 129)).cuda()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = self.model(ids[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def train(steps: int, **adamw: bool) -> dict:
    trainer = Trainer(**adamw)
    losses = [trainer.step() for _ in range(steps)]
    return {"losses": losses, "parameters": dict(trainer.model.named_parameters())}


def main() -> None:
    options = outputs.arguments(steps=6)
    outputs.save(options.output, foreach=train(options.steps, foreach=True), fused=train(options.steps, fused=True))


if __name__ == "__main__":
    main()
