"""How many nodes of graphs replays set: each that moves once, while the device works on the replay before, where regions
feed one another.

ahead_test.py --grape LIBRARY --simcuda FOLDER --sim-torch FOLDER
"""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "sim_torch"))
import simulated  # noqa: E402

OPTIONS = None

# Writes for each round how many operators ran, how many kernels were launched on their own, and how many nodes were set.
COUNTING = """
import ctypes, json
import bed, tiny, torch

calls = ctypes.CDLL("libcuda.so.1").simcuda_calls
calls.restype = ctypes.c_uint64
rounds = []

class Round:
    def __enter__(self):
        self.begin = self.counts()

    def __exit__(self, *_):
        rounds.append([now - before for now, before in zip(self.counts(), self.begin)])

    def counts(self):
        return bed.operators_run(), calls(b"cuLaunchKernel"), calls(b"cuGraphExecKernelNodeSetParams_v2")

class Scaling(tiny.Net):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, tensors):
        return [tensor * self.factor for tensor in tensors]

class Growing(tiny.Net):
    def forward(self, x, rows):
        return [torch.cat([one, x]) for one in rows]

class Adding(tiny.Net):
    def forward(self, some, others):
        return [one + other for one, other in zip(some, others)]

def modules(*made):
    return [module.cuda().eval() for module in made]

torch.set_grad_enabled(False)
"""
SHOW = "print(json.dumps(rounds))\n"

# Each one's outputs are the other's inputs.
IN_TURNS = """
first, second = modules(Scaling(2.0), Scaling(0.5))
tensors = [tiny.data(i) for i in range(6)]
for _ in range(40):
    with Round():
        tensors = second(first(tensors))
"""

# A cache that grows and is put into another order in turns: a program for each length. The row stays where it is.
GROWING = """
growing, ordering = modules(Growing(), Scaling(-1.0))
row, kept = tiny.data(9, 1), []
for i in range(24):
    rows = [tiny.data(i, 2) for i in range(6)]
    with Round():
        for _ in range(5):
            rows = ordering(growing(row, rows))
            kept.append(rows)
            if len(kept) > 9:
                del kept[3 * i % 7]  # memory comes in another order each time
"""

# The one in the middle is fed by both others.
CHAIN = """
first, second, third = modules(Scaling(2.0), Adding(), Scaling(0.25))
tensors = [tiny.data(i) for i in range(6)]
for _ in range(40):
    with Round():
        scaled = first(tensors)
        tensors = third(second(scaled, tensors))
"""

# What a region takes at its second call of a round was made before its first one. The other region's inputs are its
# second next outputs, for which there is no memory yet.
BEFORE = """
first, second = modules(Scaling(2.0), Scaling(0.5))
tensors = [tiny.data(i) for i in range(6)]
for _ in range(40):
    with Round():
        kept = first(tensors)
        second(tensors[:4])
        tensors = second(kept)
"""


class Ahead(unittest.TestCase):
    def rounds(self, program):
        environment = simulated.environment(OPTIONS, LD_PRELOAD=OPTIONS.grape, GRAPE_MODE="replay")
        done = subprocess.run(
            [sys.executable, "-c", COUNTING + program + SHOW],
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
            timeout=120,
        )
        return json.loads(done.stdout)

    def expect_each_node_set_once(self, program, late=0):
        """In most of the later rounds: in some a call runs as always, to be measured. `late`: nodes that are set at the call."""
        rounds = self.rounds(program)
        nodes = rounds[0][1]
        replayed = sorted(sets for operators, _, sets in rounds[len(rounds) // 2 :] if operators == 0)
        self.assertGreater(len(replayed), len(rounds) // 8, rounds)
        self.assertLessEqual(replayed[len(replayed) // 2], nodes + late, rounds)
        self.assertGreater(replayed[len(replayed) // 2], 0, rounds)

    def test_two_regions_in_turns(self):
        self.expect_each_node_set_once(IN_TURNS)

    # What comes new into the cache is not known ahead: a round's first inputs.
    def test_a_program_for_each_length(self):
        self.expect_each_node_set_once(GROWING, late=6)

    def test_outputs_that_wait_for_another_call(self):
        self.expect_each_node_set_once(BEFORE, late=6)

    def test_a_region_that_two_others_feed(self):
        self.expect_each_node_set_once(CHAIN)


if __name__ == "__main__":
    OPTIONS, rest = simulated.options_of(__doc__)
    unittest.main(argv=[sys.argv[0], *rest])
