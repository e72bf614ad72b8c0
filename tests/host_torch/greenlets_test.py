"""greenlets_test.py --python INTERPRETER --grape LIBRARY: greenlets that switch inside of a module's call.

They exchange the stack of C on which the call that Grape looks at stands. Such calls are refused, all results are those
of the plain run, and calls that do not switch are replayed. Each program trains and evaluates.
"""

import gc
import hashlib
import sys

import replayed

STEPS = 14
HOME = {}


def go_home():
    HOME["main"].switch()


def go_home_if_asked():
    if HOME["asked"]:
        go_home()


def digest(*tensors):
    return hashlib.sha256(b"".join(t.detach().cpu().numpy().tobytes() for t in tensors)).hexdigest()[:16]


def make_net(torch, switch, inner=False):
    class Switching(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, x):
            x = self.a(x)
            if not inner:
                enabled = torch.is_grad_enabled()
                switch()
                torch.set_grad_enabled(enabled)  # it is the thread's: another greenlet may have left its own
                return self.b(x).relu()
            with torch.enable_grad():
                y = x.detach().requires_grad_()
                total = self.b(y).square().sum().cpu()
                total.register_hook(lambda gradient: None if switch() else None)  # on this thread: it is on the CPU
                return torch.autograd.grad(total, y)[0] + x

    torch.manual_seed(0)
    return Switching().cuda()


def train_and_evaluate(torch, net, note):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for i in range(STEPS):
        x = torch.arange(8.0 * (2 + i % 3), device="cuda").view(-1, 8) / 50
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        note(i, digest(loss, *(p.grad for p in net.parameters() if p.grad is not None)))
        with torch.no_grad():
            note(i, *(digest(net(x[: 2 + k % 2])) for k in range(4)))


def switches(torch):
    """Two greenlets by turns, from places of the stack that differ."""
    import greenlet

    lines = [[], []]
    HOME["main"] = greenlet.getcurrent()
    nets = [make_net(torch, go_home) for _ in range(2)]
    both = [
        greenlet.greenlet(lambda i=i: train_and_evaluate(torch, nets[i], lambda *line: lines[i].append(line)))
        for i in range(2)
    ]

    def resume_from(depth):
        return resume_from(depth - 1) if depth else [one.switch() for one in both if not one.dead]

    turns = 0
    while not all(one.dead for one in both):
        turns += 1
        resume_from(turns % 7)
    print(turns, lines, flush=True)


def inner_passes(torch):
    """There and back in the middle of a pass: PyTorch itself bears no other one in between."""
    import greenlet

    net = make_net(torch, lambda: greenlet.greenlet(int).switch(), inner=True)
    train_and_evaluate(torch, net, lambda *line: print(*line, flush=True))


def by_hub(torch):
    """gevent switches by functions of greenlet's C API."""
    import gevent

    lines = [[], []]
    nets = [make_net(torch, lambda: gevent.sleep(0)) for _ in range(2)]
    jobs = [gevent.spawn(train_and_evaluate, torch, nets[i], lambda *line, i=i: lines[i].append(line)) for i in range(2)]
    gevent.joinall(jobs, raise_error=True)
    print(lines, flush=True)


def left_for_good(torch):
    """Some never come back, and end in the middle of their call when they are freed, maybe inside of another one."""
    import greenlet

    def learn_and_leave(after):
        lines = []

        def note(*line):
            lines.append(line)
            HOME["asked"] = len(lines) == after
            print(*line, flush=True)

        HOME["asked"] = False
        train_and_evaluate(torch, make_net(torch, go_home_if_asked), note)

    HOME["main"] = greenlet.getcurrent()
    left = []
    for i in range(STEPS // 2):
        left.append(greenlet.greenlet(learn_and_leave))
        left[-1].switch(i + 1)
        torch.set_grad_enabled(True)
        if i % 4 == 3:
            left.clear()
            gc.collect()
        freeing = make_net(torch, lambda: left.pop(0) if len(left) == 3 else None)
        train_and_evaluate(torch, freeing, lambda *line: print(*line, flush=True))


PROGRAMS = (switches, inner_passes, by_hub, left_for_good)


def main():
    if sys.argv[1:2] == ["--program"]:
        import torch

        return {program.__name__: program for program in PROGRAMS}[sys.argv[2]](torch)
    given = replayed.options(__doc__)
    for program in PROGRAMS:
        for more in ({}, {"GRAPE_VALIDATE": "2"}) if program is switches else ({},):
            arguments = ["--program", program.__name__]
            _, regions = replayed.compare(given, __file__, arguments, GRAPE_LOOK_BUDGET="unlimited", **more)
            done = sum(region["replayed"] for region in regions)
            said = {reason["text"] for region in regions for reason in region["reasons"]}
            print(f"{program.__name__}: {done} of {sum(region['calls'] for region in regions)} calls replayed; {said}")
            if done < STEPS:
                raise SystemExit("too few calls were replayed")
            if program in (switches, by_hub) and not any("of a greenlet" in text for text in said):
                raise SystemExit("no call was refused for a switch")


if __name__ == "__main__":
    main()
