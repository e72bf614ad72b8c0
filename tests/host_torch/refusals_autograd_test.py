"""refusals_autograd_test.py --python INTERPRETER --grape LIBRARY: calls under autograd that are refused, and the ids that
the report gives.

Each case trains a module for some steps. The program runs plain and under Grape with GRAPE_AUTOGRAD=1. All that it
prints must be equal, and the region's reasons must have the id under which the case stands.
"""

import sys

import refusal_cases_autograd
import refusals_test
import replayed

STEPS = 12


def made(name, case):
    """The case's module, of a class of its name."""
    import torch
    from torch import nn

    def __init__(self):
        nn.Module.__init__(self)
        self.linear = nn.Linear(8, 8)
        for one in case.parameters:
            setattr(self, one, nn.Parameter(torch.rand(8)))
        for key, part in case.modules.items():
            setattr(self, key, part())

    members = {"__init__": __init__, "forward": lambda self, *args: case.forward(self, *args)}
    return type(name, (nn.Module,), members)().cuda()


def program():
    import torch

    refusal_cases_autograd.set_up()
    for name, case in refusal_cases_autograd.CASES.items():
        torch.manual_seed(0)
        model = made(name, case)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for i in range(STEPS):
            results = case.step(model, case.arguments(i))
            seen = [result.detach().sum().item() for result in results]
            seen += [None if p.grad is None else p.grad.to_dense().sum().item() for p in model.parameters()]
            optimizer.step()
            optimizer.zero_grad()
            print(name, i, *seen, *(p.detach().sum().item() for p in model.parameters()), flush=True)


def main():
    if sys.argv[1:2] == ["--program"]:
        return program()
    given = replayed.options(__doc__)
    reasons = refusals_test.reasons_of_cases(given, __file__, ["--program"], GRAPE_AUTOGRAD="1")
    return 1 if refusals_test.missing(refusal_cases_autograd.CASES, reasons) else 0


if __name__ == "__main__":
    sys.exit(main())
