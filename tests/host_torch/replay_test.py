"""replay_test.py --python INTERPRETER --grape LIBRARY: a network's calls are replayed, and give the bits that they give plain."""
import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile

CALLS = 16


def program():
    import torch
    from operators_test import Net

    class Drawing(Net):
        def forward(self, ids):
            chances, *others = super().forward(ids)
            drawn = torch.multinomial(chances.flatten(0, 1), 2)
            return torch.dropout(chances, 0.3, True), drawn, torch.rand_like(chances), *others

    torch.manual_seed(0)
    net = Drawing().eval().cuda()
    with torch.no_grad():
        for i in range(CALLS):
            results = net(torch.randint(50, (2, 7 + i % 2), device="cuda"))
            parts = [x for part in results for x in ([part] if isinstance(part, torch.Tensor) else part)]
            print(hashlib.sha256(b"".join(x.cpu().numpy().tobytes() for x in parts)).hexdigest(), flush=True)


def cast():
    """autocast keeps what it casts of parameters up to its end, but for those that need no gradients."""
    import torch

    torch.manual_seed(0)
    linear, frozen = torch.nn.Linear(16, 16).cuda(), torch.nn.Sequential(torch.nn.Linear(16, 16)).cuda()
    frozen.requires_grad_(False)
    for i in range(CALLS):
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
            for model in (linear, frozen):
                print(model(torch.full((2, 16), i / 8, device="cuda")).float().sum().item())


def run(python, part="--program", **changes):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRAPE_")}
    command = [python, os.path.abspath(__file__), part]
    done = subprocess.run(command, env={**environment, **changes}, stdout=subprocess.PIPE, encoding="utf-8", timeout=240)
    if done.returncode != 0:
        raise SystemExit(f"exit status {done.returncode}")
    return done.stdout.split()


def compare(options, part, lines):
    """What the report says of the regions. The program prints the same plain."""
    plain = run(options.python, part)
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        replayed = run(options.python, part, LD_PRELOAD=options.grape, GRAPE_MODE="replay", GRAPE_REPORT=report)
        with open(report, encoding="utf-8") as file:
            regions = json.load(file)["regions"]
    if len(plain) != lines or replayed != plain:
        raise SystemExit(f"outputs differ:\n{plain}\n{replayed}")
    return regions


def main():
    if sys.argv[1:] in (["--program"], ["--cast"]):
        return program() if sys.argv[1] == "--program" else cast()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--grape", required=True)
    options = parser.parse_args()
    (drawing,) = compare(options, "--program", CALLS)
    print(f"{drawing['replayed']} of {CALLS} calls replayed: {drawing['reasons']}")
    if drawing["replayed"] < CALLS // 2:
        raise SystemExit("too few calls were replayed")
    regions = {region["region"].split(":")[-1]: region for region in compare(options, "--cast", 2 * CALLS)}
    keeps = any("autocast keeps" in reason["text"] for reason in regions["Linear"]["reasons"])
    if regions["Linear"]["replayed"] != 0 or not keeps or regions["Sequential"]["replayed"] < CALLS // 2:
        raise SystemExit(f"under autocast: {regions}")


if __name__ == "__main__":
    main()
