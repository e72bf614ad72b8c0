from common import *

class Part0(nn.Module):

    def forward(self, x, *more):
        pass

class Part2(nn.Module):

    def __init__(self):
        super().__init__()
        self.p0 = Part0()

def start():
    s = new_state(Part2().cuda(), optimizer=None, grads=None)
    return s

def pattern_0(s, k):
    s.x = x = (data(k, grad=True) * 1).t()
    r = s.net.p0(x, x)

def pattern_1(s, k):
    for k in range(k, k + 2):
        s.x = x = (data(k, grad=True) * 1).t()
        r = s.net.p0(x, x)

def step_24(s):
    s.handles.append(s.net.p0.register_forward_pre_hook(retains_input))
    pattern_1(s, 96)

def step_25(s):
    pattern_0(s, 100)
