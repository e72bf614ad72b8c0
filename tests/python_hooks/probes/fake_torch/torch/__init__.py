"""A test double of PyTorch: only the shapes that the hooks rely on (who calls whom, and how). It computes nothing."""
from torch import _C, nn, optim, autograd  # noqa: F401


class Tensor:
    """Its backward pass runs the given functions, in the engine."""

    def __init__(self, *functions):
        self.functions = functions

    def backward(self):
        autograd.backward(self)
