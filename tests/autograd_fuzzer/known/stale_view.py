from common import *
G_R = data(75) if True else data(75, grad=True) * 1

class Part0(nn.Module):

    def __init__(self):
        super().__init__()
        self.lin, self.act = (nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), nn.CELU(inplace=True))
        self.w, self.b = (nn.Parameter(data(1)), nn.Parameter(data(2)[0].clone()))
        self.register_buffer('buf', data(4).abs())
        self.state, self.kept, self.holder = (data(3), None, Buffers())

    def forward(self, x):
        x = x.t().contiguous()
        return self.buf

class Part1(nn.Module):

    def __init__(self):
        super().__init__()
        self.lin, self.act = (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.SELU(inplace=True))
        self.w, self.b = (nn.Parameter(data(1)), nn.Parameter(data(2)[0].clone()))
        self.state, self.kept, self.holder = (data(3, grad=True) * 1, None, Buffers())

    def forward(self, d):
        pass

class Part2(nn.Module):

    def __init__(self):
        super().__init__()
        self.lin, self.act = (nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), nn.CELU(inplace=True))
        self.register_buffer('buf', data(4).abs())
        self.state, self.kept, self.holder = (data(3, grad=True) * 1, None, Buffers())
        self.p0 = Part0()
        self.p1 = Part1()

    def forward(self, x):
        h = x.view(4, 4)
        F.silu(h.narrow(0, 1, 3), inplace=True)
        r0 = self.p0(h)
        h = h + r0
        x = x + h.diagonal()
        r0 = self.p0(h)
        h = h + r0
        with saved_tensors_hooks(give_back, give_back):
            r1 = self.p1({'x': x, 'k': 1})
        x = r1
        return h.diagonal()

def start():
    s = new_state(Part2().cuda(), optimizer=None, grads=None)
    s.optimizer = torch.optim.SGD(s.net.parameters(), lr=0.05, momentum=0.9)
    return s

def forget(s):
    s.net.holder.t.detach_()
    s.net.p0.holder.t.detach_()

def pattern_0(s, k):
    s.net.zero_grad()
    for k in range(k, k + 2):
        s.x = x = data(k, grad=True) * 1
        r = s.net(x)
        s.r = r
        loss = loss_of(r, x)
        loss.backward()

def pattern_1(s, k):
    pass

def step_2(s):
    forget(s)
    pattern_0(s, 8)

def step_3(s):
    forget(s)
    pattern_0(s, 12)

def step_5(s):
    s.handles.append(s.net.p1.register_forward_pre_hook(retains_input))
    pattern_0(s, 20)
