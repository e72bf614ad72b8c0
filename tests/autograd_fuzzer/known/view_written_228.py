from common import *

class Part0(nn.Module):
    pass

class Part1(nn.Module):

    def forward(self, x):
        h = x
        h[0] = 0.75

class Part2(nn.Module):
    pass

class Part3(nn.Module):
    pass

class Part4(nn.Module):

    def __init__(self):
        super().__init__()
        self.p0 = Part1()
        self.p1 = Part3()

def start():
    s = new_state(Part4().cuda(), optimizer=None, grads=None)
    return s

def pattern_2(s, k):
    for k in range(k, k + 3):
        s.x = x = (data(k, grad=True) * 1).t()
        r = s.net.p0(x.t())
        s.r = r

def step_8(s):
    pattern_2(s, 32)

def step_10(s):
    pass
