"""What PyTorch calls when it has been imported: its operators move onto the simulated device. HOST_TORCH: the library."""
import ctypes
import os


def begin():
    import torch

    if ctypes.PyDLL(os.environ["HOST_TORCH"]).host_torch_install() != 0:
        raise ImportError("PyTorch's operators cannot be put onto the simulated device")
    torch.cuda._device_count_nvml = lambda: -1  # NVML counts the devices of the machine, not the simulated ones
    torch.backends.cudnn.enabled = False  # its kernels are none of PyTorch's operators
    torch._C._set_sdp_use_flash(False)
    torch._C._set_sdp_use_mem_efficient(False)
    torch._C._set_sdp_use_cudnn(False)
