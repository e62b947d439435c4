"""Several processes and several devices: the backend `registry` of `torch.distributed`, and what `DataParallel` says.

The backend's collectives are in `csrc/process_group.cpp`. Its processes talk by gloo, PyTorch's backend for the CPU.
"""

import ctypes
import functools
import warnings

import torch

NAME = "registry"


def install(name, shim):
    """Makes it the backend of the device, which `init_process_group()` chooses where the program names none."""
    if not torch.distributed.is_available():
        return
    backend = torch.distributed.Backend
    if taken := backend._plugins.get(NAME.upper()):
        owner = getattr(taken.creator_fn, "__module__", taken.creator_fn)
        warnings.warn(
            f"`torch.distributed` has a backend `{NAME}` already, of {owner}, so that this package registers none: "
            f"processes cannot exchange tensors of `{name}`",
            stacklevel=5,
        )
        return
    backend.register_backend(NAME, functools.partial(_create, name, shim), devices=[name])


def _create(name, shim, store, rank, size, timeout):
    """The backend for one process group."""
    if not torch.distributed.is_gloo_available():
        raise RuntimeError(f"the backend `{NAME}` needs gloo, without which this PyTorch was built")
    _register(shim)
    from torch.distributed.distributed_c10d import ProcessGroup, ProcessGroupGloo

    group = ProcessGroup(store, rank, size)
    gloo = ProcessGroupGloo(store, rank, size, timeout=timeout)
    group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, gloo)
    torch.ops.device_torch.stage(group.boxed())
    return group._get_backend(torch.device(name))


@functools.cache
def _register(shim):
    register = shim.dt_register_distributed
    register.restype = ctypes.c_char_p
    if failure := register():
        raise RuntimeError(f"the backend `{NAME}` and PyTorch {torch.__version__}: {failure.decode()}")


def refuse_data_parallel(name):
    """Makes `DataParallel` over several devices an error with what to do: it copies by functions of CUDA alone."""
    own = torch.nn.DataParallel.__init__

    @functools.wraps(own)
    def __init__(self, *arguments, **options):
        own(self, *arguments, **options)
        if len(self.device_ids) > 1 and self.src_device_obj.type == name:
            raise NotImplementedError(
                f"`DataParallel` works with several devices of CUDA, not of `{name}`: use `DistributedDataParallel` "
                f"with a process for each device, or one device: `device_ids=[{self.device_ids[0]}]`"
            )

    torch.nn.DataParallel.__init__ = __init__
