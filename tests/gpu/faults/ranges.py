"""Run with GRAPE_TRACE_RANGE=profiler: only what lies between torch.cuda.profiler.start() and stop() is recorded, and a graph that was captured before is known. Marks from 1000 on lie outside."""

import threading

import torch
from driver import Marker, new_log, pointer, values

RANGES, MARKS = 3, 50


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin().cos()


def main() -> None:
    marker = Marker()
    log = new_log(4 * RANGES * MARKS)
    model, x = Model(), torch.ones(64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        model(x)
        with torch.cuda.graph(graph):
            result = model(x)
    stream = pointer(torch.cuda.current_stream().cuda_stream)

    def marks(first: int) -> None:
        for i in range(MARKS):
            marker.launch(stream, first + i, log)

    for number in range(RANGES):
        marks(1000)
        torch.cuda.profiler.start()
        marks(number * MARKS)
        thread = threading.Thread(target=marks, args=[2000])
        graph.replay()
        with torch.no_grad():
            model(x)
        torch.cuda.profiler.stop()
        thread.start()
        thread.join()
        marks(1000)
        torch.cuda.synchronize()
    print(f"{len(values(log))} marks, {result.double().sum().item()}")


if __name__ == "__main__":
    main()
