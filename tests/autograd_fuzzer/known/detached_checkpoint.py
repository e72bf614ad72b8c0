from common import *


class Scale(nn.Module):
    def forward(self, x):
        return x.sin().mean().detach()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.scale = nn.Linear(4, 4), nn.Linear(4, 4), Scale()

    def forward(self, x):
        h = self.a(x).tanh()
        s = self.scale(h)
        return (self.b(h).tanh() * s).tanh()


def start():
    return new_state(Block().cuda())


def step_0(s):
    loss_of(checkpoint(s.net, data(0), use_reentrant=False)).backward()


def step_1(s):
    for k in range(1, 8):
        loss_of(checkpoint(s.net, data(k), use_reentrant=False)).backward()
