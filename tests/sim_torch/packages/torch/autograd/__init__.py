from torch.autograd import forward_ad  # noqa: F401
