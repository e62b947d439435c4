"""Trains the network of `digits.py` by several processes, each with a part of every batch.

    DEVICE_TORCH=openreg torchrun --nproc-per-node 2 examples/processes.py openreg

With `--compare` the first process then trains alone, and fails unless the losses are the same up to rounding.
"""

import argparse

import torch
import torch.distributed as dist
from digits import BATCH_SIZE, Network, load
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(model, pictures, labels, device, epochs, rank=0, size=1):
    """The loss of each epoch. A process gets every `size`th picture of a batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(epochs):
        total = torch.zeros((), device=device)
        # The last batch, which is smaller, is left out: its parts would not have the same weight.
        for start in range(0, len(labels) - BATCH_SIZE + 1, BATCH_SIZE):
            mine = slice(start + rank, start + BATCH_SIZE, size)
            loss = nn.functional.cross_entropy(model(pictures[mine].to(device)), labels[mine].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        if size > 1:
            dist.all_reduce(total, dist.ReduceOp.AVG)
        losses.append(total.item() / (len(labels) // BATCH_SIZE))
    return losses


def network(device):
    torch.manual_seed(0)
    return Network().to(device)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("device")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--compare", action="store_true")
    options = parser.parse_args()

    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    devices = torch.get_device_module(options.device).device_count()
    device = torch.device(options.device, rank % devices)
    (pictures, labels), _ = load()

    model = DistributedDataParallel(network(device), device_ids=[device.index])
    losses = train(model, pictures, labels, device, options.epochs, rank, size)
    if rank == 0:
        for epoch, loss in enumerate(losses, 1):
            print(f"epoch {epoch}: loss {loss:.4f}, {size} processes")
        if options.compare:
            alone = train(network(device), pictures, labels, device, options.epochs)
            assert torch.allclose(torch.tensor(losses), torch.tensor(alone), rtol=1e-3), (losses, alone)
            print("the losses of one process are the same")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
