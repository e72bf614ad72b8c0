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


def run(python, **changes):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRAPE_")}
    command = [python, os.path.abspath(__file__), "--program"]
    done = subprocess.run(command, env={**environment, **changes}, stdout=subprocess.PIPE, encoding="utf-8", timeout=240)
    if done.returncode != 0:
        raise SystemExit(f"exit status {done.returncode}")
    return done.stdout.split()


def main():
    if sys.argv[1:] == ["--program"]:
        return program()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--grape", required=True)
    options = parser.parse_args()
    plain = run(options.python)
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        replayed = run(options.python, LD_PRELOAD=options.grape, GRAPE_MODE="replay", GRAPE_REPORT=report)
        with open(report, encoding="utf-8") as file:
            regions = json.load(file)["regions"]
    if len(plain) != CALLS or replayed != plain:
        raise SystemExit(f"outputs differ:\n{plain}\n{replayed}")
    count = sum(region["replayed"] for region in regions)
    print(f"{count} of {CALLS} calls replayed: {[region['reasons'] for region in regions]}")
    if count < CALLS // 2:
        raise SystemExit("too few calls were replayed")


if __name__ == "__main__":
    main()
