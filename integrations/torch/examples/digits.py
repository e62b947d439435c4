"""Trains a network on handwritten digits, on any device.

    DEVICE_TORCH=openreg python examples/digits.py openreg:1

It says the loss of each epoch and how many held-out digits the network knows. With `--compare` it trains on the CPU
too, and fails unless the losses are the same up to rounding. The device's name is all that differs.

`integrations/burn/examples/digits` is the same for burn, with dropout, and has the file.
"""

import argparse
import gzip
import pathlib

import torch
from torch import nn

FILE = pathlib.Path(__file__).parents[2] / "burn/examples/digits/data/digits.csv.gz"
HELD_OUT = 5
BATCH_SIZE = 32


def load():
    """Pictures of 8 x 8 pixels from 0 to 1, and their digits: those to train on, and every fifth held out."""
    with gzip.open(FILE, "rt") as file:
        rows = torch.tensor([[float(value) for value in line.split(",")] for line in file])
    pictures, labels = rows[:, :-1].reshape(-1, 1, 8, 8) / 16, rows[:, -1].long()
    is_held_out = torch.arange(len(rows)) % HELD_OUT == 0
    return (pictures[~is_held_out], labels[~is_held_out]), (pictures[is_held_out], labels[is_held_out])


class Network(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(512, 10),
        )  # fmt: skip


def train(device, epochs, data):
    """The losses of all epochs, and the share of held-out digits that the network knows."""
    torch.manual_seed(42)
    (pictures, labels), (held_pictures, held_labels) = data
    network = Network().to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    losses = []
    for epoch in range(epochs):
        total = 0.0
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(BATCH_SIZE):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(pictures[batch].to(device)), labels[batch].to(device))
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        losses.append(total / len(labels))
        print(f"{device}: epoch {epoch + 1}, loss {losses[-1]:.4f}", flush=True)
    with torch.no_grad():
        known = network(held_pictures.to(device)).argmax(1).cpu() == held_labels
    accuracy = known.float().mean().item()
    print(f"{device}: knows {accuracy:.1%} of {len(held_labels)} held-out digits")
    return losses, accuracy


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("device", help="its name in PyTorch, such as openreg:1")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--compare", action="store_true", help="train on the CPU as well")
    arguments = parser.parse_args()
    data = load()
    losses, _ = train(arguments.device, arguments.epochs, data)
    if arguments.compare:
        torch.testing.assert_close(losses, train("cpu", arguments.epochs, data)[0], rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    main()
