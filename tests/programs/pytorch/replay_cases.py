#!/usr/bin/env python3
"""Programs that lie in wait for a replayer. Each case is a small model in a loop; the script prints one line per case with
a digest of everything that the program could see. Run it plain and under GRAPE_MODE=replay: the lines must be equal.

replay_cases.py [CASE ...]
"""

import hashlib
import sys
import traceback
from typing import Any

import torch

import cases_small_calls  # noqa: F401: adds its cases
import cases_small_changes  # noqa: F401
import cases_transformers  # noqa: F401
import cases_usages  # noqa: F401
from replay_bed import CASES


def add(digest: "hashlib._Hash", value: Any) -> None:
    if isinstance(value, torch.Tensor):
        digest.update(str((value.dtype, tuple(value.shape), value.stride())).encode())
        digest.update(value.detach().float().cpu().contiguous().numpy().tobytes())
    elif isinstance(value, (list, tuple)):
        for part in value:
            add(digest, part)
    else:
        digest.update(repr(value).encode())


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    status = 0
    for name in sys.argv[1:] or CASES:
        digest, end = hashlib.sha256(), ""
        try:
            with torch.no_grad():
                for value in CASES[name]():
                    add(digest, value)
        except Exception as error:
            traceback.print_exc()
            end, status = f" {type(error).__name__}", 1
        print(f"{name} {digest.hexdigest()[:24]}{end}", flush=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
