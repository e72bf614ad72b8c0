"""training_test.py --python INTERPRETER --grape LIBRARY: no call that moves what autograd notes of a tensor is replayed.

Every case of cases_autograd.py, cases_hidden_bases.py and cases_swapped_memory.py (tests/programs/pytorch) runs plain and under Grape, and all
that the program sees must be equal. The first is the smallest net that was once trained wrong: linear, activation in place, linear.
"""

import hashlib
import os
import sys

import replayed

STEPS = 24
CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "programs", "pytorch")


def program(names):
    sys.path.insert(0, CASES)
    import cases_autograd as autograd_cases
    import cases_hidden_bases  # noqa: F401  more of them
    import cases_swapped_memory  # noqa: F401
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    for name in names or sorted(autograd_cases.CASES):
        if name == "hidden" and not names:
            continue
        torch.manual_seed(0)
        step = autograd_cases.CASES[name]()
        for i in range(STEPS):
            try:
                print(name, i, step(), flush=True)
            except RuntimeError as error:  # of the backward pass, say
                print(name, i, error, flush=True)


def twelve_lines():
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(inplace=True), torch.nn.Linear(8, 4)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    x = torch.randn(16, 8, device="cuda")
    for _ in range(150):
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bits = b"".join(p.grad.cpu().numpy().tobytes() for p in net.parameters())
        print(loss.item(), hashlib.sha256(bits).hexdigest(), flush=True)


def main():
    if sys.argv[1:2] == ["--program"]:
        return twelve_lines() if sys.argv[2:] == ["twelve"] else program(sys.argv[2:])
    given = replayed.options(__doc__)
    replayed.compare(given, __file__, ["--program", "twelve"])
    for validate in ("0", "2"):
        lines, regions = replayed.compare(given, __file__, ["--program"], GRAPE_VALIDATE=validate)
        done = sum(region["replayed"] + region["validated"] for region in regions)
        print(f"GRAPE_VALIDATE={validate}: {len(lines)} steps equal, {done} calls replayed or checked")
        if done < 20:  # the parts that move nothing
            raise SystemExit("too few calls were replayed")
    # A call that moves it after all, by what nobody sees, is found by a check.
    lines, regions = replayed.compare(given, __file__, ["--program", "hidden"], GRAPE_VALIDATE="2")
    reasons = [reason["text"] for region in regions for reason in region["reasons"]]
    print("hidden:", reasons)
    if not any("differed from the call itself" in text and "grad_fn" in text for text in reasons):
        raise SystemExit("GRAPE_VALIDATE did not see a moved grad_fn")


if __name__ == "__main__":
    main()
