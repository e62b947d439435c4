"""Programs that compute parts of a model again in the backward pass, or keep what it saves on the CPU."""

import copy

import torch
from program import gradients_of, program, train
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def layers():
    return nn.Sequential(*(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(4)))


@program()
def checkpointing(device):
    """Activation checkpointing of both kinds, and of a sequence"""
    rows = torch.randn(3, 7, 16).to(device)
    kinds = {
        "with": lambda model: checkpoint(model, rows, use_reentrant=False),
        "reentrant": lambda model: checkpoint(model, rows.clone().requires_grad_(), use_reentrant=True),
        "sequence": lambda model: checkpoint_sequential(model, 2, rows, use_reentrant=False),
        "without": lambda model: model(rows),
    }
    model, found = layers().to(device), {}
    for name, output in kinds.items():
        trained = copy.deepcopy(model)
        found[name] = train(trained, lambda model, output=output: output(model).square().mean())
    return found


@program()
def checkpointed_dropout(device):
    """Dropout in a checkpoint: the second pass draws what the first drew, on each device"""
    model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.5), nn.Linear(32, 8)).to(device)
    rows = torch.randn(6, 16).to(device)
    found = []
    for again in (True, False):
        torch.manual_seed(3)
        model.zero_grad()
        output = checkpoint(model, rows, use_reentrant=False) if again else model(rows)
        output.square().sum().backward()
        found.append(gradients_of(model))
    # A device's numbers are its own, but twice the same.
    return {"same": [torch.equal(found[0][name], found[1][name]) for name in found[0]], "rows": rows}


@program()
def saved_on_cpu(device):
    """What the backward pass needs is kept on the CPU by `save_on_cpu`, with hooks that see it"""
    model, rows = layers().to(device), torch.randn(3, 7, 16).to(device)

    def loss(model):
        with torch.autograd.graph.save_on_cpu(pin_memory=device != "cpu" and torch.cuda.is_available()):
            return F.mse_loss(model(rows), rows)

    return train(model, loss)
