"""PyTorch's tensors are looked at again where they could not be read, since that may be so for a moment only.

With the argument "always" it is so each time.
"""

import os
import subprocess
import sys

import torch

from state import Guard, load_torch

ALWAYS = sys.argv[1:] == ["always"]
ATTEMPTS = 12


def broken(*arguments, **keywords):
    raise RuntimeError("patched by the program")


def ask(times):
    return any(load_torch() for _ in range(times))


if ALWAYS:
    torch.arange = broken
    assert not ask(2**ATTEMPTS)
    sys.exit(0)

# Inside of an operator that changes a tensor no version is counted: that is where a program's first launch may be.
no_views = torch._C._dispatch_tls_local_exclude_set() | torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), no_views):
    assert not load_torch()
arange, calls = torch.arange, []
torch.arange = lambda *arguments, **keywords: calls.append(1) or broken()
assert not ask(20)
assert 3 < len(calls) < 10, "ever more seldom"
torch.arange = arange
assert ask(40) and load_torch()
tensor = torch.zeros(2, 3)
class Case:
    pass


case = Case()
case.tensor = tensor
guard = Guard(case)
assert guard.holds()
tensor.resize_(3, 2)
assert not guard.holds()

done = subprocess.run(
    [sys.executable, os.path.abspath(__file__), "always"], stderr=subprocess.PIPE, env={**os.environ, "GRAPE_LOG": "info"}
)
said = done.stderr.decode()
assert done.returncode == 0, said
assert said.count("no replay: this PyTorch's tensors are laid out in a way that is not known: none could be made") == 1
