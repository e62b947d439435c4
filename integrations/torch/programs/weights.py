"""Programs about what PyTorch does with weights: moves them, ties them, makes them later, saves them."""

import io

import torch
from program import gradients_of, program, train, type_of, weights_of
from torch import nn
from torch.nn import functional as F


def perceptron():
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))


@program()
def optimizer_before_to(device):
    """Optimizers made before `.to(device)`: SGD, Adam, AdamW, Adadelta"""
    inputs, labels = torch.randn(16, 12).to(device), torch.randint(5, (16,)).to(device)
    found = {}
    for optimizer in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adadelta):
        model = perceptron()
        early = optimizer(model.parameters(), lr=0.01)
        before = weights_of(model)
        model.to(device)
        trained = train(model, lambda model: F.cross_entropy(model(inputs), labels), early)
        trained["trains"] = [not torch.equal(before[name], weight.cpu()) for name, weight in trained["weight"].items()]
        found[optimizer.__name__] = trained
    return found


@program()
def tied_rnn(device):
    """A language model of an LSTM, whose embedding and output are one tensor"""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(50, 24)
            self.rnn = nn.LSTM(24, 24, num_layers=2, batch_first=True)
            self.output = nn.Linear(24, 50)
            self.output.weight = self.embedding.weight

        def forward(self, words):
            return self.output(self.rnn(self.embedding(words))[0])

    model = Model().to(device)
    words = torch.randint(50, (8, 17)).to(device)
    found = train(model, lambda model: F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten()))
    found["tied"] = model.output.weight is model.embedding.weight
    return found


@program()
def lazy_layers(device):
    """Lazy layers, which are moved before they have weights"""
    model = nn.Sequential(
        nn.LazyConv2d(6, 3, bias=False), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4)
    )
    model.to(device)
    inputs, labels = torch.randn(8, 3, 8, 8).to(device), torch.randint(4, (8,)).to(device)
    weights = {"0.weight": torch.randn(6, 3, 3, 3) / 5, "4.weight": torch.randn(4, 216) / 15, "4.bias": torch.randn(4)}
    model.eval()
    model(inputs)
    model.train()
    # What a device draws for them is its own.
    model.load_state_dict(weights, strict=False)
    return train(model, lambda model: F.cross_entropy(model(inputs), labels))


@program()
def saved_and_loaded(device):
    """Training that is saved half-way, and goes on after `torch.load` with `map_location`"""
    inputs, targets = torch.randn(16, 12).to(device), torch.randn(16, 5).to(device)

    def some_steps(model, optimizer):
        return train(model, lambda model: F.mse_loss(model(inputs), targets), optimizer, steps=3)["loss"]

    model = perceptron().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = some_steps(model, optimizer)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "whole": model}, file)
    losses += some_steps(model, optimizer)
    found = {"loss": losses, "again": {}, "place": {}}
    for place, location in [("there", device), ("cpu", "cpu"), ("as it was", None), ("function", lambda *_: None)]:
        file.seek(0)
        loaded = torch.load(file, map_location=location, weights_only=False)
        assert {weight.device.type for weight in loaded["model"].values()} <= {type_of(device), "cpu"}
        found["place"][place] = loaded["whole"][0].weight.device.type == type_of(device)
        again = perceptron().to(device)
        again.load_state_dict(loaded["model"])
        optimizer = torch.optim.Adam(again.parameters(), lr=0.01)
        optimizer.load_state_dict(loaded["optimizer"])
        found["again"][place] = some_steps(again, optimizer)
    found["place"]["cpu"] = True
    return found


@program()
def mixed_devices(device):
    """A model whose embedding is on the CPU, its middle on the first device and its end on the last"""
    last = "cpu" if device == "cpu" else f"{device}:{torch.accelerator.device_count() - 1}"

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(40, 16)
            self.middle = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
            self.end = nn.Linear(16, 40)
            self.middle.to(device)
            self.end.to(last)

        def forward(self, words):
            return self.end(self.middle(self.embedding(words).to(device)).to(last)).cpu()

    words = torch.randint(40, (4, 9))
    return train(Model(), lambda model: F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten()))


@program()
def weights_by_data(device):
    """Weights that a program changes by hand: `.data`, averages of weights, a frozen part"""
    model = perceptron().to(device)
    average = torch.optim.swa_utils.AveragedModel(model)
    for weight in model[0].parameters():
        weight.requires_grad_(False)
    here = nn.Parameter(torch.randn(12))
    here.data = here.data.to(device)
    inputs, targets = torch.randn(16, 12).to(device), torch.randn(16, 5).to(device)
    losses = []
    for _ in range(4):
        model.zero_grad()
        loss = F.mse_loss(model(inputs * here), targets)
        loss.backward()
        for weight in model[2].parameters():
            weight.data -= 0.1 * weight.grad
        average.update_parameters(model)
        losses.append(loss.item())
    return {
        "loss": losses, "gradient": gradients_of(model) | {"here": here.grad}, "weight": weights_of(average)
    }  # fmt: skip
