from torch.nn.modules.layers import Dropout, Linear, ReLU, Sequential  # noqa: F401
from torch.nn.modules.module import Module  # noqa: F401
