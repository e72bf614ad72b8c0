class DeviceContext:
    """The mode behind torch.set_default_device."""
