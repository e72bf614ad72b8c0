"""The application captures graphs of its own, with forks to other streams, beside eager work in a second thread; a
capture that an illegal call breaks fails as it does without Grape (row 9)."""

import ctypes
import threading

import torch
from driver import call, pointer

CAPTURES = 5
KERNEL_NODE = 0  # CU_GRAPH_NODE_TYPE_KERNEL


def kernel_nodes(graph: torch.cuda.CUDAGraph) -> int:
    handle, count = pointer(graph.raw_cuda_graph()), ctypes.c_size_t()
    call("cuGraphGetNodes", handle, None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    call("cuGraphGetNodes", handle, nodes, ctypes.byref(count))
    kinds = []
    for node in nodes:
        kind = ctypes.c_int()
        call("cuGraphNodeGetType", pointer(node), ctypes.byref(kind))
        kinds.append(kind.value)
    return kinds.count(KERNEL_NODE)


def capture(x: torch.Tensor) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    side = torch.cuda.Stream()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        y = x.sin()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            z = x.cos()
        y = y.exp()
        torch.cuda.current_stream().wait_stream(side)
        result = y + z
    graph.instantiate()
    return graph, result


def broken_capture() -> str:
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return "no error"


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(1000, device="cuda")
    stop = threading.Event()
    eager = torch.zeros(1, device="cuda")
    steps = 0

    def work() -> None:
        nonlocal steps
        with torch.cuda.stream(torch.cuda.Stream()):
            while not stop.is_set() and steps < 20000:
                eager.add_(1)
                steps += 1

    for operation in (torch.sin, torch.cos, torch.exp):
        operation(x)
    torch.cuda.synchronize()
    thread = threading.Thread(target=work)
    thread.start()
    captured = 0
    sums = []
    for _ in range(CAPTURES):
        graph, result = capture(x)
        captured += kernel_nodes(graph)
        for _ in range(3):
            x.mul_(0.9)
            graph.replay()
            sums.append(result.double().sum().item())
    stop.set()
    thread.join()
    torch.cuda.synchronize()
    print(f"captured {captured}")
    print(f"eager steps all ran: {eager.item() == steps}")
    print(sums)
    print(broken_capture())


if __name__ == "__main__":
    main()
