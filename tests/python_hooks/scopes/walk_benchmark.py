"""Prints what one look at the Python stack costs: python_walk, 27 frames deep, and a nested module call."""
import sys
import time

import probe

CALLS = 200000


def down(depth, function):
    return down(depth - 1, function) if depth else function()


def frames():
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


def module_call(recorded):
    class Inner(torch.nn.Module):
        def forward(self):
            pass

    class Outer(torch.nn.Module):
        def forward(self):
            # Many short batches: the fastest one was not disturbed.
            inner, calls, best = self.inner, range(200), float("inf")
            for _ in range(2000):
                start = time.perf_counter_ns()
                for _ in calls:
                    inner()
                best = min(best, (time.perf_counter_ns() - start) / 200)
            return best

    outer = Outer()
    outer.inner = Inner()
    return (outer if recorded else outer.forward)()


if __name__ == "__main__":
    import torch

    plain = module_call(False)
    probe.settle()
    name = "Python %d.%d" % sys.version_info[:2]
    probe.LIBRARY.probe_discard(1)
    depth = 27 - down(0, frames)
    for leaf in (0, 1):
        best = min(down(depth, lambda: probe.LIBRARY.probe_time(CALLS, leaf)) for _ in range(7))
        print("%s: %-30s %6.1f ns" % (name, "python_leaf" if leaf else "python_walk, 27 frames", best))
    print("%s: %-30s %6.1f ns" % (name, "nested module call, added", module_call(True) - plain))
