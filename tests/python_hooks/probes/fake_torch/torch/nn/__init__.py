from torch.nn import modules  # noqa: F401
from torch.nn.modules.module import Module  # noqa: F401


class Sequential(Module):
    def __init__(self, *children):
        super().__init__()
        for i, child in enumerate(children):
            self.add_module(str(i), child)

    def forward(self, value):
        for child in self._modules.values():
            value = child(value)
        return value
