"""What `torch.compile(…, backend="device_torch")` gains: milliseconds without it and with it, in turn.

    DEVICE_TORCH=openreg python benches/compile.py
    DEVICE_TORCH=opencl python benches/compile.py

The CPU, which PyTorch computes with two threads, is without a compiler.
"""

import copy
import time

import torch
from models import Gpt
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

NAME = torch._C._get_privateuse1_backend_name()
ROUNDS = 15


def compiled(function):
    return torch.compile(function, backend="device_torch")


def chain(device):
    """Twelve operators on 2^20 elements: a GELU by its approximation, a residual and a scale."""
    torch.manual_seed(1)
    x, residual = torch.randn(1 << 20).to(device), torch.randn(1 << 20).to(device)

    def function(x, residual):
        inner = (x + x * x * x * 0.044715) * 0.7978845608
        return (x * 0.5 * (inner.tanh() + 1) + residual) * 0.7 - residual

    return function, (x, residual)


def norm(device):
    """A layer norm, a GELU and a residual on 1,024 rows."""
    torch.manual_seed(1)
    x, weight = torch.randn(1024, 768).to(device), torch.ones(768).to(device)

    def function(x, weight):
        return functional.gelu(functional.layer_norm(x, (768,), weight, weight)) + x

    return function, (x, weight)


def adam(device, count=100, **options):
    """A step of Adam with 100 parameters of 64 x 16."""
    torch.manual_seed(1)
    parameters = [torch.randn(64, 16).to(device).requires_grad_() for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.randn(64, 16).to(device)
    return torch.optim.Adam(parameters, lr=1e-3, **options).step, ()


def adam_capturable(device):
    """The same step, with its count of steps on the device."""
    return adam(device, capturable=device != "cpu")


def perceptron(device):
    """A step of the training of a perceptron with norms, without the optimizer."""
    torch.manual_seed(1)
    layers = [nn.Linear(64, 256), nn.LayerNorm(256), nn.GELU(), nn.Linear(256, 64)]
    model = nn.Sequential(*copy.deepcopy(layers), *copy.deepcopy(layers)).to(device)
    inputs, targets = torch.randn(64, 64).to(device), torch.randn(64, 64).to(device)
    return (lambda inputs, targets: functional.mse_loss(model(inputs), targets)), (inputs, targets), True


def gpt(device):
    """A step of the training of a small GPT, without the optimizer."""
    torch.manual_seed(1)
    model = Gpt().to(device)
    text = torch.randint(512, (4, 65))
    inputs, targets = text[:, :-1].to(device), text[:, 1:].flatten().to(device)
    loss = lambda inputs, targets: functional.cross_entropy(model(inputs).flatten(0, -2), targets)
    return loss, (inputs, targets), True


def call(function, arguments, trains=False):
    result = function(*arguments)
    if trains:
        result.backward()


def measure(function, arguments, *trains):
    torch.accelerator.synchronize()
    begun = time.perf_counter()
    call(function, arguments, *trains)
    torch.accelerator.synchronize()
    return (time.perf_counter() - begun) * 1e3


def launches(function, arguments, *trains):
    """How many kernels the device runs."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
        call(function, arguments, *trains)
        torch.accelerator.synchronize()
    rows = [
        event for event in profiled.events() if event.device_type == torch.autograd.DeviceType.PrivateUse1
    ]
    return sum(not row.name.startswith("Mem") for row in rows)


def main():
    torch.set_num_threads(2)
    print(f"{'ms':16} {'CPU':>8} {NAME:>9} {'compiled':>9} {'gain':>6} {'of CPU':>7} kernels")
    for case in (chain, norm, adam, adam_capturable, perceptron, gpt):
        here, there, other = case("cpu"), case(NAME), case(NAME)
        traced = (compiled(other[0]), *other[1:])
        for _ in range(3):
            call(*here), call(*there), call(*traced)
        rounds = [[measure(*each) for each in (here, there, traced)] for _ in range(ROUNDS)]
        cpu, eager, fused = (min(side) for side in zip(*rounds))
        counts = f"{launches(*there)} -> {launches(*traced)}"
        numbers = f"{cpu:8.2f} {eager:9.2f} {fused:9.2f} {eager / fused:6.2f} {cpu / fused:7.2f}"
        print(f"{case.__name__:16} {numbers} {counts}", flush=True)
        torch._dynamo.reset()


if __name__ == "__main__":
    main()
