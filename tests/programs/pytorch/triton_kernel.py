"""A kernel of triton's for hook_of_a_triton_kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def doubled(x):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
