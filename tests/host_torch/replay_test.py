"""replay_test.py --python INTERPRETER --grape LIBRARY: a network's calls are replayed, and give the bits that they give plain."""

import hashlib
import sys

import replayed

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


def main():
    if sys.argv[1:] == ["--program"]:
        return program()
    lines, (drawing,) = replayed.compare(replayed.options(__doc__), __file__, ["--program"])
    print(f"{drawing['replayed']} of {CALLS} calls replayed: {drawing['reasons']}")
    if len(lines) != CALLS or drawing["replayed"] < CALLS // 2:
        raise SystemExit("too few calls were replayed")


if __name__ == "__main__":
    main()
