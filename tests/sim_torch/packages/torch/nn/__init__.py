from torch.nn import functional, modules, parameter  # noqa: F401
from torch.nn.modules import Dropout, Linear, Module, ReLU, Sequential  # noqa: F401
from torch.nn.parameter import Parameter  # noqa: F401
