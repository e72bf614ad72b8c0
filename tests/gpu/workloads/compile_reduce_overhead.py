"""torch.compile(mode="reduce-overhead"): Inductor's kernels inside CUDA graphs that it captures and replays."""

import torch
from torch import nn

import outputs


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.contract(nn.functional.gelu(self.expand(self.norm(x))))


def main() -> None:
    options = outputs.arguments(repeats=8)
    torch.manual_seed(11)
    model = nn.Sequential(Block(256), Block(256)).cuda().eval()
    compiled = torch.compile(model, mode="reduce-overhead")
    results = []
    with torch.no_grad():
        for _ in range(options.repeats):
            torch.compiler.cudagraph_mark_step_begin()
            results.append(compiled(torch.randn(64, 256).cuda()).clone())
    outputs.save(options.output, results=results)


if __name__ == "__main__":
    main()
