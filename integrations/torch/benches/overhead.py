"""What a call costs on a device beside the CPU: as microseconds, and as times the CPU's. All in one process, in turn.

    DEVICE_TORCH=openreg python benches/overhead.py
    DEVICE_TORCH=openreg DEVICE_KERNELS_DISABLE='*' python benches/overhead.py

The last rows are programs: an epoch of `examples/digits.py`, and a step of the training of two models. Each has run
once before.
"""

import pathlib
import sys
import time

import torch
from models import Gpt, resnet18
from torch import nn

sys.path.append(str(pathlib.Path(__file__).parents[1] / "examples"))
import digits  # noqa: E402

NAME = torch._C._get_privateuse1_backend_name()
SYNCHRONIZE = torch.accelerator.synchronize
ROUNDS = 15


def on(device):
    """What is timed: a name, how often it is called for one measurement, and a call."""
    one, row = torch.ones(1, device=device), torch.ones(1024, device=device)
    large, other = torch.ones(1 << 20, device=device), torch.ones(1 << 20, device=device)
    result = torch.empty(1 << 20, device=device)
    square = torch.ones(256, 256, device=device)
    host = torch.ones(1024)
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    inputs, targets = torch.randn(64, 20).to(device), torch.randn(64, 4).to(device)
    text = torch.randint(512, (4, 65))

    def step():
        optimizer.zero_grad()
        nn.functional.mse_loss(network(inputs), targets).backward()
        optimizer.step()

    return [
        ("empty", 300, lambda: torch.empty(1024, device=device)),
        ("view", 300, lambda: row.view(32, 32)),
        ("add, 1 element", 300, lambda: one + one),
        ("relu, 1,024", 300, lambda: row.relu()),
        ("sum, 1,024", 300, lambda: row.sum()),
        ("cumsum, 1,024: no kernel", 300, lambda: row.cumsum(0)),
        ("add, 1,048,576", 8, lambda: large + other),
        ("add into memory that is there", 8, lambda: torch.add(large, other, out=result)),
        ("relu, 1,048,576", 8, lambda: large.relu()),
        ("sum, 1,048,576", 8, lambda: large.sum()),
        ("matmul, 256 x 256", 8, lambda: square @ square),
        ("item", 300, lambda: one.item()),
        ("to the device, 4 KiB", 300, lambda: host.to(device)),
        ("to the CPU, 4 KiB", 300, lambda: row.cpu()),
        ("step of a perceptron", 20, step),
        ("epoch of digits.py", 1, epoch_of_digits(device)),
        ("step of resnet18", 1, step_of(resnet18(10), torch.randn(4, 3, 64, 64), torch.randint(10, (4,)), device)),
        ("step of a small GPT", 1, step_of(Gpt(), text[:, :-1], text[:, 1:].flatten(), device)),
    ]


def step_of(model, inputs, targets, device):
    """A step of a training."""
    model, inputs, targets = model.to(device), inputs.to(device), targets.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets).backward()
        optimizer.step()

    step()
    return step


def epoch_of_digits(device):
    (pictures, labels), _ = digits.load()
    network = digits.Network().to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)

    def epoch():
        for batch in torch.randperm(len(labels)).split(digits.BATCH_SIZE):
            optimizer.zero_grad()
            predicted = network(pictures[batch].to(device))
            loss = nn.functional.cross_entropy(predicted, labels[batch].to(device))
            loss.backward()
            optimizer.step()
            loss.item()

    epoch()
    return epoch


def measure(call, count):
    SYNCHRONIZE()
    begun = time.perf_counter()
    for _ in range(count):
        call()
    SYNCHRONIZE()
    return (time.perf_counter() - begun) / count * 1e6


def main():
    torch.set_num_threads(1)
    here, there = on("cpu"), on(NAME)
    print(f"{'µs, the least of ' + str(ROUNDS):32} {'CPU':>10} {NAME:>10} {'times':>7} {'more':>8}")
    for (name, count, a), (_, _, b) in zip(here, there):
        pairs = [(measure(a, count), measure(b, count)) for _ in range(ROUNDS)]
        cpu, device = (min(side) for side in zip(*pairs))
        print(f"{name:32} {cpu:10.2f} {device:10.2f} {device / cpu:7.2f} {device - cpu:8.2f}", flush=True)


if __name__ == "__main__":
    main()
