from torch.utils import _device  # noqa: F401
