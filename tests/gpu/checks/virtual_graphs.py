#!/usr/bin/env python3
"""A program with CUDA graphs of its own, launched in many ways: prints a line for each, which GRAPE_GRAPHS=virtual may not change.

Nothing here knows of Grape. Exit status: 0 done.
"""

import hashlib
import random
import threading

import torch

CHAINS, FORKS, SIZE = 40, 8, 2048
Graph = torch.cuda.CUDAGraph


def captured(step, pool=None) -> Graph:
    graph = Graph()
    with torch.cuda.graph(graph, pool=pool):
        step()
    return graph


class Graphs:
    """Graphs that work on one state: what comes out tells in which order all of their nodes ran."""

    def __init__(self) -> None:
        self.state = torch.zeros(SIZE, device="cuda", dtype=torch.float64)
        self.other = torch.zeros(SIZE, device="cuda", dtype=torch.float64)
        self.matrix = torch.eye(SIZE, device="cuda", dtype=torch.float64).roll(1, 0) * 0.5
        self.pinned = torch.full((SIZE,), 0.25, dtype=torch.float64).pin_memory()
        self.chain(0)
        self.fork(0)
        torch.cuda.synchronize()
        self.chains: list[Graph] = []
        for index in range(CHAINS):
            pool = self.chains[0].pool() if self.chains else None
            self.chains.append(captured(lambda index=index: self.chain(index), pool))
        self.forks = [captured(lambda index=index: self.fork(index)) for index in range(FORKS)]
        self.slow = captured(self.slowly)
        self.copying = captured(lambda: self.state.add_(self.pinned.to("cuda", non_blocking=True)))
        self.reset()

    def chain(self, index: int) -> None:
        rotated = torch.mv(self.matrix, self.state)  # cuBLAS
        self.state.copy_(rotated.mul(1 + index / 64).add_(index).sin())
        self.other.zero_()
        self.other.add_(self.state, alpha=index)

    def fork(self, index: int) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            left = self.state.cos()
        right = self.state.mul(index + 1).sin()
        torch.cuda.current_stream().wait_stream(side)
        self.state.copy_(left + right)

    def slowly(self) -> None:
        self.state.mul_(1.5).add_(1)
        torch.cuda._sleep(2_000_000)
        self.state.sin_()

    def reset(self) -> None:
        torch.cuda.synchronize()
        self.state.copy_(torch.linspace(-1, 1, SIZE, dtype=torch.float64))

    def line(self, name: str) -> None:
        torch.cuda.synchronize()
        data = torch.cat([self.state, self.other]).cpu().numpy().tobytes()
        print(name, hashlib.sha256(data).hexdigest()[:16])
        self.reset()


def in_any_order(graphs: Graphs, chance: random.Random) -> None:
    for _ in range(3):
        for graph in chance.sample(graphs.chains, CHAINS):
            graph.replay()
    graphs.line("at_random")
    for graph in 3 * graphs.chains:
        graph.replay()
    graphs.line("in_order")
    both = graphs.chains + graphs.forks
    for _ in range(200):
        chance.choice(both).replay()
    graphs.line("forks_between")
    for _ in range(100):
        graphs.chains[chance.randrange(4)].replay()
    graphs.line("few_often")


def on_streams(graphs: Graphs, chance: random.Random) -> None:
    streams = [torch.cuda.Stream() for _ in range(4)]
    for index in range(12):  # one exec's launches follow each other by themselves
        with torch.cuda.stream(streams[index % 4]):
            graphs.slow.replay()
    graphs.line("one_graph_on_streams")
    before = torch.cuda.current_stream()
    for _ in range(150):
        stream = chance.choice(streams)
        stream.wait_stream(before)
        before = stream
        with torch.cuda.stream(stream):
            chance.choice(graphs.chains).replay()
            if chance.random() < 0.2:
                graphs.state.add_(0.125)
    torch.cuda.current_stream().wait_stream(before)
    graphs.line("graphs_on_streams")


def beside_a_thread(graphs: Graphs, chance: random.Random) -> None:
    stop = threading.Event()
    count = torch.zeros(1, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    steps = 0

    def work() -> None:
        nonlocal steps
        with torch.cuda.stream(side):
            while not stop.is_set():
                count.add_(1)
                steps += 1

    for wait in (0, 0.01):
        thread = threading.Thread(target=work)
        stop.clear()
        for graph in chance.sample(graphs.chains, CHAINS // 2):
            graph.replay()
        thread.start()
        stop.wait(wait)
        for graph in chance.sample(graphs.chains, CHAINS):
            graph.replay()
        stop.set()
        thread.join()
        for graph in chance.sample(graphs.chains, CHAINS):
            graph.replay()
    graphs.line("beside_a_thread")
    torch.cuda.synchronize()
    print("thread", count.item() == steps)


def others(graphs: Graphs, chance: random.Random) -> None:
    for value in range(20):
        torch.cuda.synchronize()
        graphs.pinned.fill_(value / 7)
        chance.choice(graphs.chains).replay()
        graphs.copying.replay()
    graphs.line("copies_from_the_host")
    del graphs.chains[::2]
    for _ in range(100):
        chance.choice(graphs.chains).replay()
    graphs.line("half_of_them_gone")


def main() -> int:
    chance = random.Random(5)
    graphs = Graphs()
    in_any_order(graphs, chance)
    on_streams(graphs, chance)
    beside_a_thread(graphs, chance)
    others(graphs, chance)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
