from torch.optim import optimizer  # noqa: F401
from torch.optim.optimizer import Optimizer, _keep_grad_mode


class SGD(Optimizer):
    @_keep_grad_mode
    def step(self, closure=None):
        if closure is not None:
            closure()
        return self.work()


class Adam(Optimizer):
    def step(self, closure=None):
        return self.work()


class AdamW(Adam):
    pass
