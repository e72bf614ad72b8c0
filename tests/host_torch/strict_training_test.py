"""strict_training_test.py --python INTERPRETER --grape LIBRARY: GRAPE_STRICT and GRAPE_VALIDATE in training.

A loop that is replayed runs through with GRAPE_STRICT=1. A training call that is not replayed, though it should be, is an
error with its reason and, where there is one, its line. A pass for which a call was made again is a reason, and no error.
With GRAPE_VALIDATE a loop has plain's gradients, and no check says that a replay differs. If its results, its nodes or its
backward pass do, that is said.
"""

import itertools
import re
import sys

import refusal_cases_autograd
import replayed

STEPS, CHANGED_AT = 24, 9
# By case of refusals_autograd_test.py, and by what changes at one step: what the error says.
ERRORS = {
    "custom_node": r"DoubledBackward: what this node keeps .*\. Modules inside may be replayed",
    "leads_elsewhere": r"MulBackward0: a gradient goes to a tensor that is neither .*\. Make the tensor a parameter",
    "view_requires_grad": r"result\[1\]: a tensor that requires grad, in memory .*\. In training, return a copy",
    "not_made_twice": r"under autograd, and the call cannot be made again .*\. In training a call that is replayed may",
    "other_border": r"its nodes lead elsewhere than in the call before",
    "backward_not_recorded": r"its backward pass: one call ran \d+ operations on the device, the other \d+",
    "gradient_not_plain": r"its backward pass: a gradient that is not dense",
    "gradient_elsewhere": r"its backward pass: a gradient in memory that is neither its own nor",
    "gradient_of_other_kind": r"its backward pass: a gradient that is a view of a tensor which cannot be made again",
    "gradients_overlap": r"its backward pass: a gradient that came shares memory with what was saved",
    "gradient_comes_late": r"its backward pass: a gradient comes to a result after the pass has begun",
    "second_derivative": r"its backward pass is differentiated itself",
    "sums_mixed": r"its backward pass: one node's gradients are added up inside of the call and outside of it",
}
# By class: what a check says, and how many steps later an error comes.
DIFFERENCES = {
    "Scaled": ("output 0 differs from eager's", 0),
    "Detached": ("its nodes lead elsewhere than a replay's", 0),
    "Weighted": ("its backward pass is another one than a replay's: output", 1),
}
CHANGES = {
    "weight": r"its module is not as it was: module\.linear\.weight",
    "flag": r"its module is not as it was: module\.linear\.bias",
    "value": r"a value that the host reads differs from the one in the proof"
             r", at \S*strict_training_test\.py:(\d+) in [\w.<>]*forward",
}  # fmt: skip


def classes():
    """By name: modules to be trained. Scaled depends on what no guard sees."""
    import torch
    from refusal_cases_state import hidden
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.drop, self.last = nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 4)

        def forward(self, x):
            return self.last(self.drop(self.linear(x).tanh()))

    class Leaf(Net):
        """A view of the argument requires grad, and nobody asks for its gradient."""

        def forward(self, x):
            h = x[:]
            h.requires_grad = True
            return super().forward(h)

    class Reading(Net):
        def forward(self, x):
            return super().forward(x) * (2.0 if x.sum() > 0 else 1.0)  # the line that is named

    class Scaled(Net):
        def forward(self, x):
            return super().forward(x) * (1.0 + hidden())

    class Detached(Net):
        """What is hidden changes its nodes, and not its results."""

        def forward(self, x):
            h = super().forward(x)
            return h.detach() + (h - h) if hidden() else h + (h - h)

    class Weighted(Net):
        """What is hidden changes a number that the backward pass multiplies with, and neither its results nor its nodes."""

        def forward(self, x):
            h = super().forward(x)
            weight = torch.full((4,), 1.0 + hidden(), device="cuda")
            return h + (h * weight - h.detach() * weight)

    return {cls.__name__: cls for cls in (Net, Leaf, Reading, Scaled, Detached, Weighted)}


def change(model, what, i):
    """What a replay stands on, at one step. The inputs of that step and those after it."""
    import torch
    from refusal_cases_state import set_hidden

    if i == CHANGED_AT and what == "weight":
        model.linear.weight = torch.nn.Parameter(model.linear.weight.detach() * 0.5)
    elif i == CHANGED_AT and what == "flag":
        model.linear.bias.requires_grad_(False)
    elif what == "hidden":
        set_hidden(int(i >= CHANGED_AT))
    return -1.0 if what == "value" and i >= CHANGED_AT else 1.0


def train(name, what):
    """Prints all that the program sees of each step, or the error of the first one that raises."""
    import torch

    torch.manual_seed(0)
    model = classes()[name]().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for i in range(STEPS):
        x = torch.rand(6, 8, device="cuda") * change(model, what, i)
        try:
            out = model(x)
            loss = out.square().sum()
            if what == "penalty" and i == CHANGED_AT:
                loss = loss + sum(one.square().sum() for one in torch.autograd.grad(loss, model.parameters(), create_graph=True))
            loss.backward(retain_graph=what == "pass" and i == CHANGED_AT)
        except RuntimeError as error:
            print(f"{name} {what} {i} raises {error}", flush=True)
            return
        gradients = [None if p.grad is None else p.grad.double().sum().item() for p in model.parameters()]
        print(name, what, i, loss.item(), out.double().sum().item(), *gradients, flush=True)
        optimizer.step()
        optimizer.zero_grad()


def train_refused():
    """The cases of refusals_autograd_test.py, each up to its first error."""
    import torch
    from refusals_autograd_test import made

    refusal_cases_autograd.set_up()
    for name in ERRORS:
        torch.manual_seed(0)
        case = refusal_cases_autograd.CASES[name]
        model = made(name, case)
        for i in range(STEPS):
            try:
                case.step(model, case.arguments(i))
            except RuntimeError as error:
                print(f"{name} refused {i} raises {error}", flush=True)
                break
            model.zero_grad()


def program(arguments):
    if arguments == ["refused"]:
        return train_refused()
    return train(*arguments)


def region_of(regions, name):
    return next(one for one in regions if one["region"].endswith(f".{name}") or one["region"].endswith(f":{name}"))


def under_grape(given, arguments, **settings):
    """A run that is not like plain: its lines, all of them from a process that ended well."""
    settings = {"LD_PRELOAD": given.grape, "GRAPE_MODE": "replay", "GRAPE_AUTOGRAD": "1", **settings}
    return replayed.process([given.python, __file__, "--program", *arguments], settings)


def check_strict_loop(given):
    for name, strict in itertools.product(("Net", "Leaf"), ("0", "1")):
        _, regions = replayed.compare(given, __file__, ["--program", name, "none"], GRAPE_AUTOGRAD="1", GRAPE_STRICT=strict)
        net = region_of(regions, name)
        print(f"{name}, GRAPE_STRICT={strict}: {net['replayed']} of {net['calls']} calls replayed")
        if net["replayed"] < STEPS - 4:
            raise SystemExit("too few calls were replayed")


def check_other_pass(given):
    for strict in ("0", "1"):
        _, regions = replayed.compare(given, __file__, ["--program", "Net", "pass"], GRAPE_AUTOGRAD="1", GRAPE_STRICT=strict)
        found = [one["count"] for one in region_of(regions, "Net")["reasons"] if one["id"] == "pass_not_foreseen"]
        if found != [1]:
            raise SystemExit(f"a pass that was not foreseen, with GRAPE_STRICT={strict}: {region_of(regions, 'Net')['reasons']}")
    print("a pass that was not foreseen is a reason")


def check_errors(given):
    """Which errors are not what they should be."""
    wrong = []
    lines = under_grape(given, ["refused"], GRAPE_STRICT="1", GRAPE_EARLY_REGIONS="1").stdout.splitlines()
    for name, text in ERRORS.items():
        wanted = rf"{name} refused \d+ raises GRAPE_STRICT: \S*{name} is not replayed: {text}"
        if not any(re.match(wanted, line) for line in lines):
            wrong.append(name)
    for what, text in CHANGES.items():
        name = "Reading" if what == "value" else "Net"
        plain = replayed.run(given.python, __file__, ["--program", name, what])
        lines = under_grape(given, [name, what], GRAPE_STRICT="1").stdout.splitlines()
        found = re.match(rf"{name} {what} {CHANGED_AT} raises GRAPE_STRICT: \S*{name} is not replayed: {text}", lines[-1])
        if lines[:-1] != plain[:CHANGED_AT] or not found or found.groups() not in ((), (str(line_that_is_named()),)):
            wrong.append(f"{what}: {lines[-1]}")
    print(f"{len(ERRORS) + len(CHANGES)} errors, {len(wrong)} not as they should be", *wrong, sep="\n")
    return wrong


def line_that_is_named():
    with open(__file__, encoding="utf-8") as lines:
        return next(i for i, line in enumerate(lines, 1) if line.rstrip().endswith("# the line that is named"))


def check_validated(given):
    # A pass that is differentiated has those behind it computed by the call's own nodes.
    _, regions = replayed.compare(given, __file__, ["--program", "Net", "penalty"], GRAPE_AUTOGRAD="1", GRAPE_VALIDATE="1")
    if any("differed" in reason["text"] for reason in region_of(regions, "Net")["reasons"]):
        raise SystemExit(f"a false alarm with a penalty: {region_of(regions, 'Net')['reasons']}")
    for name, every in (("Net", "1"), ("Net", "3"), ("Leaf", "1")):
        _, regions = replayed.compare(given, __file__, ["--program", name, "none"], GRAPE_AUTOGRAD="1", GRAPE_VALIDATE=every)
        net = region_of(regions, name)
        print(f"{name}, GRAPE_VALIDATE={every}: {net['validated']} of {net['calls']} calls checked, {net['replayed']} replayed")
        if any("differed" in reason["text"] for reason in net["reasons"]):
            raise SystemExit(f"a false alarm: {net['reasons']}")
        if net["validated"] + net["replayed"] < STEPS - 4 or net["validated"] < (STEPS - 4) // int(every):
            raise SystemExit("too few calls were checked")


def check_difference(given, name, text, raised_at):
    """Each call that would have been replayed is checked: the program sees plain's results and gradients, and an alarm."""
    plain = replayed.run(given.python, __file__, ["--program", name, "hidden"])
    for settings in ({}, {"GRAPE_STRICT": "1"}):
        done = under_grape(given, [name, "hidden"], GRAPE_VALIDATE="1", **settings)
        lines = done.stdout.splitlines()
        said = [reason["text"] for reason in region_of(done.regions, name)["reasons"]]
        if f"a replay differs from the call itself: {text}" not in done.stderr or not any(text in one for one in said):
            raise SystemExit(f"nobody said that a replay of {name} differs: {said}\n{done.stderr[-2000:]}")
        raised = "raises GRAPE_STRICT" in lines[-1] and "a replay differed from the call itself" in lines[-1]
        if (lines[:-1] != plain[:raised_at] or not raised) if settings else lines != plain:
            raise SystemExit(f"{name} after a check that failed, with {settings}: {lines[-1]}")
    print(f"{name}: a difference is said")


def main():
    if sys.argv[1:2] == ["--program"]:
        return program(sys.argv[2:])
    given = replayed.options(__doc__)
    check_strict_loop(given)
    check_validated(given)
    check_other_pass(given)
    # A pass comes after its call: the next one is the error.
    for name, (text, after) in DIFFERENCES.items():
        check_difference(given, name, text, CHANGED_AT + after)
    return 1 if check_errors(given) else 0


if __name__ == "__main__":
    sys.exit(main())
