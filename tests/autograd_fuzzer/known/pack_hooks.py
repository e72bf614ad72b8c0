from common import *


class Gate(nn.Module):
    def forward(self, x):
        return x.sin().detach()


def start():
    return new_state(Gate().cuda())


def step_0(s):
    for k in range(8):
        s.r = s.net(data(k, grad=True) * 1)


def step_1(s):
    with saved_tensors_hooks(count_packed, give_back):
        s.r = s.net(data(9, grad=True) * 1)
