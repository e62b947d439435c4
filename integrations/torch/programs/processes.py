"""Programs of several processes that train one model."""

import tempfile

import torch
import torch.distributed as dist
from program import gradients_of, program, type_of
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

PROCESSES = 2


def train(model, rows, labels, mean=lambda loss: loss):
    """The losses of some steps, by `mean` of those of all processes, and the gradients of the last."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(rows), labels)
        loss.backward()
        optimizer.step()
        losses.append(mean(loss.detach()).item())
    return losses, gradients_of(getattr(model, "module", model))


def job():
    """The model and its data, the same in each process."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4))
    return model, torch.randn(16, 12), torch.randint(4, (16,))


def rank_of_ddp(rank, device, folder):
    """One of the processes: it trains on its part of the rows."""
    backend = "gloo" if device == "cpu" else f"cpu:gloo,{type_of(device)}:registry"
    dist.init_process_group(backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=PROCESSES)
    model, rows, labels = job()
    place = device
    if device != "cpu":
        torch.accelerator.set_device_index(rank % torch.accelerator.device_count())
        place = torch.device(device, torch.accelerator.current_device_index())
    model = DistributedDataParallel(model.to(place))

    def mean(loss):
        dist.all_reduce(loss)
        return loss / PROCESSES

    mine = slice(rank, None, PROCESSES)
    losses, gradients = train(model, rows[mine].to(place), labels[mine].to(place), mean)
    torch.save((losses, {name: gradient.cpu() for name, gradient in gradients.items()}), f"{folder}/{rank}")
    dist.destroy_process_group()


@program()
def ddp(device):
    """`DistributedDataParallel` on two processes, beside the same training in one"""
    model, rows, labels = job()
    losses, gradients = train(model.to(device), rows.to(device), labels.to(device))
    found = {"loss": losses, "gradient": gradients}
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_of_ddp, (str(device), folder), nprocs=PROCESSES)
        for rank in range(PROCESSES):
            of_rank, gradients_of_rank = torch.load(f"{folder}/{rank}")
            torch.testing.assert_close(of_rank, losses, rtol=1e-5, atol=0)
            found[f"process {rank}"] = {"loss": of_rank, "gradient": gradients_of_rank}
    return found
