"""validated_test.py --python INTERPRETER --grape LIBRARY: what other threads change while a replay is checked is not taken
for the call's own doing."""

import sys
import threading

import replayed

CALLS, EVERY = 80, 10


def program():
    import torch
    from torch import nn

    torch.manual_seed(0)
    now = {"due": False, "ended": False}  # no event: to set one lets the other thread run at once

    def change_a_setting():
        while not now["ended"]:
            if now["due"]:
                now["due"] = False
                torch._C._set_check_sparse_tensor_invariants(False)

    thread = threading.Thread(target=change_a_setting)
    thread.start()
    sys.setswitchinterval(1e-5)  # the thread's turn comes inside of the next call
    net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)]).cuda().eval()
    with torch.no_grad():
        for i in range(CALLS):
            x = torch.full((4, 8), float(i), device="cuda")
            now["due"] = i % EVERY == EVERY - 1
            y = net(x)
            while now["due"]:
                pass
            print(y.sum().item(), flush=True)
    now["ended"] = True
    thread.join()


def main():
    if sys.argv[1:] == ["--program"]:
        return program()
    given = replayed.options(__doc__)
    _, regions = replayed.compare(given, __file__, ["--program"], GRAPE_VALIDATE="1")
    region = next(one for one in regions if one["region"].endswith("Sequential"))
    reasons = [reason["text"] for reason in region["reasons"]]
    print(f"{region['validated']} of {region['calls']} calls checked: {reasons}")
    if any("differed" in text for text in reasons):
        raise SystemExit("another thread's doing is said to be the call's")
    if region["validated"] < CALLS // 4:
        raise SystemExit("hardly any replay was checked")


if __name__ == "__main__":
    main()
