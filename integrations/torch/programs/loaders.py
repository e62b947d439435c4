"""Programs whose data come from processes of their own, by fork and by spawn, into pinned memory."""

import torch
from program import gradients_of, program, weights_of
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    """Rows by a formula, each with a label."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        row = torch.sin(torch.arange(12) * (index + 1.0))
        return row, int(row.sum() > 0)


def trained(device, method):
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # The device is in use before there are workers.
    found = {"loss": [model(torch.ones(1, 12).to(device)).sum().item()], "pinned": []}
    options = {"batch_size": 8, "num_workers": 2, "multiprocessing_context": method}
    # Without a device PyTorch pins nothing, and warns.
    loader = DataLoader(Rows(), **options, pin_memory=device != "cpu", persistent_workers=True)
    for _ in range(2):
        for rows, labels in loader:
            found["pinned"].append(device == "cpu" or rows.is_pinned())
            optimizer.zero_grad()
            output = model(rows.to(device, non_blocking=True))
            loss = F.cross_entropy(output, labels.to(device, non_blocking=True))
            loss.backward()
            optimizer.step()
            found["loss"].append(loss.item())
    return found | {"gradient": gradients_of(model), "weight": weights_of(model)}


@program()
def workers_by_fork(device):
    """Two workers by fork, after the device was used, and pinned memory"""
    return trained(device, "fork")


@program()
def workers_by_spawn(device):
    """Two workers by spawn, and pinned memory"""
    return trained(device, "spawn")
