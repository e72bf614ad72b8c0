"""training_test.py --python INTERPRETER --grape LIBRARY: a call that moves what autograd notes of a tensor is not replayed,
or reproduced in exactly that.

Every case of the group "training" (tests/programs) runs plain and under Grape, with GRAPE_AUTOGRAD=0 and without, and all
that the program sees must be equal. The first is the smallest net that was once trained wrong: linear, activation in place, linear.
"""

import hashlib
import sys

import replayed


# They look at nodes behind a result's own, which are links, and at the numbers that nodes made later have.
NODES = {"stale_later", "stale_later_part", "casts_without_gradients"}


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
        return twelve_lines()
    given = replayed.options(__doc__)
    replayed.compare(given, __file__, ["--program"])
    training = replayed.Cases(given, ["--group", "training"])
    failed = [name for name, one in training.plain.items() if one["error"]]
    if failed:
        raise SystemExit(f"failed in the plain run: {failed}")
    for validate in ("0", "2"):
        regions = training.under_grape(GRAPE_MODE="replay", GRAPE_AUTOGRAD="0", GRAPE_VALIDATE=validate)
        done = sum(region["replayed"] + region["validated"] for region in regions)
        print(f"GRAPE_VALIDATE={validate}: {len(training.plain)} cases equal, {done} calls replayed or checked")
        if done < 20:  # the parts that move nothing
            raise SystemExit("too few calls were replayed")
    regions = replayed.Cases(given, sorted(set(training.plain) - NODES)).under_grape(GRAPE_MODE="replay")
    print(f"{sum(region['replayed'] for region in regions)} calls replayed, with their backward passes")
    # A call that moves it after all, by what nobody sees, is found by a check.
    regions = replayed.Cases(given, ["hidden"]).under_grape(GRAPE_MODE="replay", GRAPE_AUTOGRAD="0", GRAPE_VALIDATE="2")
    reasons = [reason["text"] for region in regions for reason in region["reasons"]]
    print("hidden:", reasons)
    if not any("differed from the call itself" in text and "grad_fn" in text for text in reasons):
        raise SystemExit("GRAPE_VALIDATE did not see a moved grad_fn")


if __name__ == "__main__":
    main()
