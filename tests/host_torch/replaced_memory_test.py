"""replaced_memory_test.py --python INTERPRETER --grape LIBRARY: where a backward pass cannot be computed any more as eager
would, an error says so.

A weight that a node keeps is replaced, or its storage freed and filled with other values, between a replayed call and its
backward pass; or an input is written to before a second pass. Plain works, or fails at a later node. Each step's gradients are
compared: under Grape they are plain's, or there is an error and no gradient that plain has not.
"""

import json
import os
import sys

import replayed

STEPS, LATE = 16, 8
KINDS = ("weight swapped", "weight set", "weight freed", "view's weight freed", "input changed")


def program():
    import torch

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [os.path.join(here, "training"), os.path.join(here, "..", "sweep")]  # whose `bed` it is
    import training_faults as faults

    def change(kind, scale, linear, x):
        if kind == "input changed":
            faults.change_input(x, None, None)
        else:
            what, how = kind.rsplit(" ", 1)
            faults.CHANGES[how](linear if what.startswith("view") else scale)

    for kind in KINDS:
        torch.manual_seed(0)
        model = faults.saving().cuda()
        for step in range(STEPS):
            x = torch.full((6, 8), 0.1 + step / 10, device="cuda")
            loss = model(x).square().sum()
            again = kind == "input changed"
            error = ""
            if again:
                loss.backward(retain_graph=True)
            if step >= LATE or again:
                change(kind, model[2].weight, model[3].weight, x)
            try:
                loss.backward()
            except RuntimeError as raised:
                error = str(raised)[:60]
            gradients = [None if p.grad is None else p.grad.double().sum().item() for p in model.parameters()]
            print(json.dumps({"kind": kind, "step": step, "error": error, "gradients": gradients}), flush=True)
            model.zero_grad()


def main():
    if sys.argv[1:] == ["--program"]:
        return program()
    given = replayed.options(__doc__)
    plain = [json.loads(line) for line in replayed.run(given.python, __file__, ["--program"])]
    settings = {"LD_PRELOAD": given.grape, "GRAPE_MODE": "replay", "GRAPE_AUTOGRAD": "1", "GRAPE_EARLY_REGIONS": "1"}
    done = replayed.process([given.python, __file__, "--program"], settings)
    under_grape = [json.loads(line) for line in done.stdout.splitlines()]
    if len(plain) != len(under_grape) or len(plain) != STEPS * len(KINDS):
        raise SystemExit(f"{len(plain)} and {len(under_grape)} steps")
    wrong = [(b["kind"], b["step"]) for a, b in zip(plain, under_grape) if a["gradients"] != b["gradients"] and not b["error"]]
    if wrong:
        raise SystemExit(f"gradients are not plain's, and nothing said so: {wrong}")
    told = {b["kind"] for a, b in zip(plain, under_grape) if a != b}
    replays = sum(region["replayed"] for region in done.regions)
    print(f"{replays} calls replayed; not as plain, with an error: {sorted(told)}")
    if replays < LATE:
        raise SystemExit("hardly anything was replayed")


if __name__ == "__main__":
    main()
