"""Kernels written in Triton: an addition and a row-wise softmax."""

import torch
import triton
import triton.language as tl

import outputs


@triton.jit
def add_kernel(x_pointer, y_pointer, out_pointer, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_pointer + offsets, mask=mask)
    y = tl.load(y_pointer + offsets, mask=mask)
    tl.store(out_pointer + offsets, x + y, mask=mask)


@triton.jit
def softmax_kernel(in_pointer, out_pointer, row_stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(in_pointer + row * row_stride + offsets, mask=mask, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out_pointer + row * row_stride + offsets, values / tl.sum(values, axis=0), mask=mask)


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out


def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def main() -> None:
    options = outputs.arguments(repeats=10)
    torch.manual_seed(9)
    results = []
    for index in range(options.repeats):
        x = torch.randn(100 + index, 777).cuda()
        results.append((add(x, x.roll(1)), softmax(x)))
    assert torch.allclose(results[-1][1], x.softmax(dim=1), atol=1e-6)
    outputs.save(options.output, results=results)


if __name__ == "__main__":
    main()
