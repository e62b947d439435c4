"""Tensors of the device in messages between processes: an error that says what to send instead."""

from multiprocessing.reduction import ForkingPickler

import torch
from torch.multiprocessing.reductions import reduce_tensor


def install(name):
    """Has queues and arguments of processes refuse tensors of the device; other tensors they share as ever."""

    def reduce(tensor):
        if tensor.device.type == name:
            raise RuntimeError(
                f"memory of `{tensor.device}` is not shared between processes: send `tensor.cpu()`, or numbers from "
                "which the other process makes its own tensor"
            )
        return reduce_tensor(tensor)

    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, reduce)
