"""cache_test.py --python INTERPRETER --grape LIBRARY: processes that follow one another with GRAPE_CACHE give plain bits.

Each kernel's parameter begins with the address of a function of the process (operators.cc), so that processes differ there
as GPU programs do in addresses of the host. A graph that had another process's address would jump to it.
"""

import json
import os
import sys
import tempfile

import replayed

CALLS = 20
PROCESSES = 6
NETS = ("layers", "convolutions", "attention")


def make(name):
    from torch import nn

    if name == "layers":
        return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)), (4, 16)
    if name == "convolutions":
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)), (2, 3, 10, 10)
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)


def program(name):
    import torch

    torch.manual_seed(0)
    net, shape = make(name)
    net = net.eval().cuda()
    with torch.no_grad():
        for _ in range(CALLS):
            print(net(torch.randn(shape).cuda()).cpu().numpy().tobytes().hex(), flush=True)


def run_preloaded(options, name, folder, expected):
    """One process with the cache: how often the net was observed, and on how many earlier proofs it stood."""
    report = os.path.join(folder, "report.json")
    changes = {"LD_PRELOAD": options.grape, "GRAPE_CACHE": os.path.join(folder, "cache"), "GRAPE_REPORT": report}
    lines = replayed.run(options.python, __file__, ["--program", name], **changes)
    if lines != expected:
        raise SystemExit(f"{name}: other bits than the plain program's")
    with open(report, encoding="utf-8") as file:
        told = json.load(file)
    (region,) = (region for region in told["regions"] if region["calls"] == CALLS)
    if region["replayed"] != CALLS - region["observed"] or region["observed"] > 3:
        raise SystemExit(f"{name}: {region['replayed']} calls replayed, {region['observed']} observed: {region['reasons']}")
    return region["observed"], told["cache"]["used"]


def main():
    if sys.argv[1:2] == ["--program"]:
        return program(sys.argv[2])
    options = replayed.options(__doc__)
    for name in NETS:
        expected = replayed.run(options.python, __file__, ["--program", name])
        with tempfile.TemporaryDirectory() as folder:
            first, used = run_preloaded(options, name, folder, expected)
            seen = [first]
            # Bytes of two addresses may be equal by chance: then one more process is needed to learn that they differ.
            while used == 0 and len(seen) < PROCESSES:
                observed, used = run_preloaded(options, name, folder, expected)
                seen.append(observed)
        print(f"{name}: observed calls, process by process: {seen}")
        if seen[-1] >= first or max(seen) > first:
            raise SystemExit(f"{name}: what earlier processes proved was of no use")


if __name__ == "__main__":
    main()
