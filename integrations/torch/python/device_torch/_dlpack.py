"""DLPack for tensors of the device.

PyTorch exports them for PyTorch alone, as memory of an *extension device* at the device's addresses, and does not
know the type of a device that was renamed. For consumers that want memory of the host, this exports the bytes where
they are, or a copy where the host does not reach them.
"""

import functools

import torch
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType


def install(name):
    """Gives `torch.Tensor` the two methods of the protocol, which leave other tensors to PyTorch's own."""
    own_device, own_export = torch.Tensor.__dlpack_device__, torch.Tensor.__dlpack__

    def is_ours(tensor):
        return tensor.device.type == name and not has_torch_function_unary(tensor)

    @functools.wraps(own_device)
    def __dlpack_device__(self):
        return (DLDeviceType.kDLExtDev, self.device.index) if is_ours(self) else own_device(self)

    @functools.wraps(own_export)
    def __dlpack__(self, **asked):
        if not is_ours(self) or not _is_for_host(asked) or self.requires_grad or self.is_conj():
            return own_export(self, **asked)
        copy = asked.get("copy")
        here = None if copy else torch.ops.device_torch.shared_with_host(self)
        if here is None:
            if copy is False:
                raise BufferError(
                    f"the host reaches the memory of `{self.device}` by copies alone, and copy=False forbids one: "
                    "pass copy=None, or export `tensor.cpu()`"
                )
            here = self.cpu()
        return own_export(here, **{**asked, "stream": None, "dl_device": None, "copy": None})

    torch.Tensor.__dlpack_device__, torch.Tensor.__dlpack__ = __dlpack_device__, __dlpack__


def _is_for_host(asked):
    """Whether the consumer wants memory of the host. NumPy, which has no other, always passes a device, and None for
    the host. PyTorch passes none for the tensor's own."""
    if "dl_device" not in asked:
        return False
    device = asked["dl_device"]
    return device is None or device[0] == DLDeviceType.kDLCPU
