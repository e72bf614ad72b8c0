from common import *
G_T, G_S, G_L, G_O = (data(71), {'t': data(72)}, [data(73)], Buffers())

class Part0(nn.Module):

    def __init__(self):
        super().__init__()
        self.w, self.b = (nn.Parameter(data(1)), nn.Parameter(data(2)[0].clone()))

    def forward(self, x, g=None):
        x += self.w

class Part1(nn.Module):

    def __init__(self):
        super().__init__()
        self.p0 = Part0()

    def forward(self, x):
        with torch.enable_grad():
            r0 = self.p0(x, g=G_T)

def start():
    s = new_state(Part1().cuda(), optimizer=None, grads=None)
    return s

def pattern_0(s, k):
    s.net.zero_grad()
    s.x = x = (data(k, grad=True) * 1).view(4, 4)
    r = checkpoint(s.net, x, use_reentrant=True)
    loss_of(r, x).backward()

def step_3(s):
    pattern_0(s, 12)

def step_4(s):
    pattern_0(s, 16)

def step_5(s):
    pattern_0(s, 20)
