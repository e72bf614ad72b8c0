from common import *
INDEX = torch.tensor([0, 2]).cuda()

class Part0(nn.Module):

    def forward(self, x, *more):
        global G_T
        DirtyUnwritten.apply(x)

class Part1(nn.Module):

    def __init__(self):
        super().__init__()
        self.lin, self.act = (nn.Linear(4, 4, bias=False), nn.SiLU(inplace=True))
        self.p0 = Part0()

    def forward(self, x):
        h = self.lin(x)
        r0 = self.p0(h, h)
        r0 = checkpoint(self.p0, h, h, use_reentrant=True)
        return h

def start():
    s = new_state(Part1().cuda(), optimizer=None, grads=None)
    return s

def region_net(net, x):
    return net(x)

def pattern_2(s, k):
    for k in range(k, k + 2):
        s.x = x = (data(k, grad=True) * 1).clone()
        r = checkpoint(region_net, s.net, x, use_reentrant=True)
        loss_of(r, x).backward()

def step_11(s):
    pattern_2(s, 44)

def step_12(s):
    pattern_2(s, 48)
