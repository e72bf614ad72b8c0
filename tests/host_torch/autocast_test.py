"""autocast_test.py --python INTERPRETER --grape LIBRARY: what autocast keeps of weights is what it is plain, and replayed."""

import sys

import replayed


class Program:
    """Prints what a small network gives under autocast, in several ways."""

    def __init__(self):
        import torch

        torch.manual_seed(0)
        self.torch = torch
        self.inner = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.Linear(32, 16)).cuda()

    def block(self):
        return self.torch.autocast("cuda", dtype=self.torch.float16)

    def call(self, i):
        with self.torch.no_grad():
            y = self.inner(self.torch.full((2, 16), i / 8, device="cuda"))
        print(y.dtype, y.float().sum().item(), flush=True)

    def each(self):
        """A block for each call."""
        for i in range(20):
            with self.block():
                self.call(i)

    def all(self):
        """Many calls in a block: those behind the first one find the casts that it left."""
        for _ in range(3):
            with self.block():
                for i in range(10):
                    self.call(i)

    def gradients(self):
        """Behind calls without gradients their casts lead the gradients to the weights."""
        for i in range(12):
            with self.block():
                self.call(i)
                loss = self.inner(self.torch.full((2, 16), 0.5, device="cuda")).float().square().sum()
            loss.backward()
            print(*(p.grad.double().sum().item() for p in self.inner.parameters()))
            self.inner.zero_grad()

    def stale(self):
        """Weights are written to in a block, and what is kept of them stays: for other operators, too."""
        torch, weight = self.torch, self.inner[0].weight
        for i in range(10):
            with self.block(), torch.no_grad():
                for change in (1.5, 0.5, 1.25):
                    self.call(i)
                    weight.mul_(change)
                    print(torch.nn.functional.linear(torch.ones(1, 16, device="cuda"), weight).float().sum().item())
                torch.clear_autocast_cache()
                self.call(i)

    def refused(self):
        """PyTorch throws as it is to cast, where a replay asks it to: nothing is kept then, and the program goes on."""
        from numpy._core import _multiarray_umath as umath

        torch = self.torch

        def cast(x, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
            if umath._get_madvise_hugepage():
                raise RuntimeError("refused")
            return torch.empty(x.shape, dtype=dtype or x.dtype, device=device or x.device).copy_(x)

        library = torch.library.Library("aten", "IMPL")
        library.impl("_to_copy", cast, "CUDA")
        for i in range(13):
            x = torch.full((2, 16), i / 8, device="cuda", dtype=torch.float16)
            with self.block(), torch.no_grad():
                umath._set_madvise_hugepage(int(i == 12))
                try:
                    y = self.inner[0](x).float().sum().item()
                except RuntimeError as error:  # plain, or where the call runs as always
                    y = str(error)
                umath._set_madvise_hugepage(0)
                print(y if i < 12 else type(y) in (float, str), flush=True)


def main():
    if sys.argv[1:2] == ["--program"]:
        return getattr(Program(), sys.argv[2])()
    given = replayed.options(__doc__)
    for way in ("each", "all", "gradients", "stale", "refused"):
        for validate in ("0", "1") if way in ("each", "all") else ("0",):
            lines, regions = replayed.compare(given, __file__, ["--program", way], GRAPE_VALIDATE=validate)
            most = max(regions, key=lambda region: region["replayed"] + region["validated"])
            done = most["replayed"] + most["validated"]
            print(f"{way}, GRAPE_VALIDATE={validate}: {done} of {most['calls']} calls replayed or checked")
            if done < 6:
                raise SystemExit(f"{way}: too few calls were replayed: {regions}")


if __name__ == "__main__":
    main()
