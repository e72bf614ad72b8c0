"""devices_test.py --python INTERPRETER --grape LIBRARY: a model on cuda:1 gives plain bits, whichever device is current.

Where it is the current one its calls are replayed; else they are passed on, and the report says what to do.
"""

import hashlib
import json
import os
import sys
import tempfile

import replayed

CALLS = 16
DEVICES = {"SIMCUDA_DEVICES": "2"}
WHAT_TO_DO = "torch.cuda.set_device(1)"


def program(current):
    import torch
    from torch import nn

    assert torch.cuda.device_count() == 2
    if current != "other":
        torch.cuda.set_device(0 if current == "block" else 1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 8)).to("cuda:1").train()
    with torch.no_grad():
        for _ in range(CALLS):
            x = torch.randn(4, 16).to("cuda:1")
            if current == "block":
                with torch.cuda.device(1):
                    y = net(x)
            else:
                y = net(x)
            assert y.device == torch.device("cuda:1")
            drawn = torch.rand(2, device="cuda:1"), torch.rand(2, device="cuda:0")
            print(hashlib.sha256(b"".join(t.cpu().numpy().tobytes() for t in (y, *drawn))).hexdigest(), flush=True)


def run_preloaded(options, current, expected):
    """What became of the model's calls."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        changes = {"LD_PRELOAD": options.grape, "GRAPE_REPORT": report, **DEVICES}
        lines = replayed.run(options.python, __file__, ["--program", current], **changes)
        if lines != expected:
            raise SystemExit(f"{current}: other bits than the plain program's")
        with open(report, encoding="utf-8") as file:
            regions = json.load(file)["regions"]
    (region,) = (region for region in regions if region["region"].endswith(":Sequential"))
    print(f"{current}: {region['replayed']} of {region['calls']} calls replayed: {region['reasons']}")
    return region


def is_explained(reason):
    return reason["text"].startswith("works on a device that is not the current one") and WHAT_TO_DO in reason["advice"]


def main():
    if sys.argv[1:2] == ["--program"]:
        return program(sys.argv[2])
    options = replayed.options(__doc__)
    for current in ("same", "block", "other"):
        expected = replayed.run(options.python, __file__, ["--program", current], **DEVICES)
        region = run_preloaded(options, current, expected)
        if current == "other":
            if region["replayed"] != 0 or not any(is_explained(reason) for reason in region["reasons"]):
                raise SystemExit(f"{current}: it should be passed on, with a reason that says what to do")
        elif region["replayed"] < CALLS // 2:
            raise SystemExit(f"{current}: too few calls were replayed")


if __name__ == "__main__":
    main()
