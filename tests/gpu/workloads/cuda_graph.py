"""A hand-captured CUDA graph: capture once, replay with new inputs, beside eager work; dropout draws new numbers."""

import torch
from torch import nn

import outputs


def main() -> None:
    options = outputs.arguments(replays=10)
    torch.manual_seed(10)
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Dropout(0.2), nn.Linear(2048, 512)).cuda().train()
    static_input = torch.zeros(32, 512, device="cuda")
    results = []
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(static_input)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            static_output = model(static_input).sigmoid()
        for _ in range(options.replays):
            static_input.copy_(torch.randn(32, 512).cuda())
            graph.replay()
            results.append(static_output.clone())
            results.append(model(results[-1]))
    outputs.save(options.output, results=results)


if __name__ == "__main__":
    main()
