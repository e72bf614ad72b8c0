"""lifetimes_test.py --python INTERPRETER --grape LIBRARY: modules that come and go where others lay give their own results.

Regions are found by the addresses of modules. These are used again as soon as a module has gone; and one may come back in
its own finalizer. Each program trains and evaluates in turns, with all weights different.
"""

import gc
import hashlib
import sys

import replayed


def digest(*tensors):
    return hashlib.sha256(b"".join(t.detach().cpu().numpy().tobytes() for t in tensors)).hexdigest()


def gradients(net, x):
    loss = net(x).square().mean()
    loss.backward()
    return digest(loss, *(p.grad for p in net.parameters()))


def short_lived(torch):
    nn = torch.nn
    x = torch.randn(4, 8, device="cuda")
    activations = [nn.ReLU(), nn.Tanh(), nn.ReLU(inplace=True), nn.Identity()]
    for i in range(120):
        torch.manual_seed(i)
        net = nn.Sequential(nn.Linear(8, 8), activations[i % 4], nn.Linear(8, 4)).cuda()
        if i % 3 == 0:
            print(i, gradients(net, x), flush=True)
        with torch.no_grad():
            print(i, *(digest(net(x)) for _ in range(6)), flush=True)
        del net
        if i % 7 == 0:
            gc.collect()


def resurrected(torch):
    kept = []

    class Cyclic(torch.nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.linear, self.factor, self.cycle = torch.nn.Linear(8, 8), factor, [self]

        def forward(self, x):
            return self.linear(x) * self.factor

        def __del__(self):
            if len(kept) < 5:
                kept.append(self)

    x = torch.randn(4, 8, device="cuda")
    for i in range(40):
        torch.manual_seed(i)
        net = Cyclic(i).cuda()
        with torch.no_grad():
            print(i, *(digest(net(x)) for _ in range(8)), flush=True)
        del net
        gc.collect()
        with torch.no_grad():
            print(i, *(digest(one(x)) for one in kept), flush=True)


def main():
    if sys.argv[1:2] == ["--program"]:
        import torch

        torch.manual_seed(0)
        short_lived(torch)
        return resurrected(torch)
    given = replayed.options(__doc__)
    _, regions = replayed.compare(given, __file__, ["--program"])
    done = sum(region["replayed"] for region in regions)
    print(f"{done} of {sum(region['calls'] for region in regions)} calls replayed")
    if done < 100:
        raise SystemExit("too few calls were replayed")


if __name__ == "__main__":
    main()
