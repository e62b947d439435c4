"""What a program of this folder is, and what most of them share.

A program is a function that takes a device and returns what it found there: numbers, tensors, and lists and dicts of
them. `run.py` calls it with the CPU and with a device, with the same seed, and compares.

A device draws other random numbers than the CPU. So a program makes weights and data on the CPU and moves them, as most
programs do, and its dropout is 0.
"""

import dataclasses
from collections.abc import Callable

import torch

PROGRAMS = {}
# Of the largest number of each tensor. Kernels add in another order than the CPU, so that the last bits differ.
TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Program:
    """A function with what a reader of the table wants to know."""

    function: Callable
    packages: tuple[str, ...]
    tolerance: float
    pending: str
    limit: int

    @property
    def name(self):
        return self.function.__name__

    @property
    def title(self):
        """The first line of the function's text, without its full stop."""
        return self.function.__doc__.splitlines()[0].removesuffix(".")


def program(*packages, tolerance=TOLERANCE, because="", pending="", limit=600):
    """Enters a function into the list.

    `packages` are those that it is about. Another tolerance has a reason, `because`. `pending` says why the program
    fails today on every device: then a success is an error, so that the mark goes. After `limit` seconds it has failed.
    """
    assert tolerance == TOLERANCE or because, "a tolerance of its own has a reason"

    def enter(function):
        assert function.__name__ not in PROGRAMS, f"two programs are named {function.__name__}"
        PROGRAMS[function.__name__] = Program(function, packages, tolerance, pending, limit)
        return function

    return enter


def train(model, loss, optimizer=None, steps=4):
    """Trains where the model is: losses of all steps, gradients of the first, weights and buffers after the last.

    `loss` takes the model and returns a loss. The optimizer is plain SGD: others divide by the size of gradients, and so
    make large what rounding leaves of a gradient that is zero.
    """
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
    losses, gradients = [], {}
    for step in range(steps):
        optimizer.zero_grad()
        value = loss(model)
        value.backward()
        if step == 0:
            gradients = gradients_of(model)
        optimizer.step()
        losses.append(value.item())
    return {"parameters": count(model), "loss": losses, "gradient": gradients, "weight": weights_of(model)}


def gradients_of(model):
    """A copy of each gradient, by the name of its parameter."""
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def weights_of(model):
    """A copy of each weight and buffer. Tied weights are there under each of their names."""
    return {name: weight.clone() for name, weight in model.state_dict().items()}


def count(model):
    """How many parameters the model has, and numbers in them. Tied weights count once."""
    parameters = list(model.parameters())
    return [len(parameters), sum(weight.numel() for weight in parameters)]


def type_of(device):
    """The type of a device, such as `openreg` of `openreg:1`, which autocast and scalers take."""
    return torch.device(device).type
