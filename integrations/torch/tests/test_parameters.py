"""A tensor becomes one of another device in place, so that optimizers and tied weights keep it."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Tied(nn.Module):
    """A language model whose output has the weights of its input."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.cell = nn.GRU(8, 8, batch_first=True)
        self.output = nn.Linear(8, 20, bias=False)
        self.output.weight = self.words.weight

    def forward(self, words):
        return self.output(self.cell(self.words(words))[0])


def test_an_optimizer_that_was_made_before_trains_the_model(device):
    def outcome(where):
        torch.manual_seed(2)
        layer = nn.Linear(3, 2)
        weight, optimizer = layer.weight, torch.optim.Adam(layer.parameters(), lr=0.1)
        layer.to(where)
        assert layer.weight is weight and weight.device.type == where
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.ones(4, 3, device=where)).square().sum().backward()
            optimizer.step()
        # Its state goes with it, and there and back.
        layer.to("cpu").to(where)
        return layer.weight.detach().cpu()

    torch.testing.assert_close(outcome(device), outcome("cpu"), rtol=1e-4, atol=1e-5)


def test_weights_that_are_tied_stay_tied_and_train_as_on_the_cpu(device):
    torch.manual_seed(0)
    here = Tied()
    there = copy.deepcopy(here).to(device)
    assert there.output.weight is there.words.weight
    words = torch.randint(0, 20, (4, 9))

    def losses(model, where):
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        inputs, targets = words[:, :-1].to(where), words[:, 1:].flatten().to(where)
        for _ in range(6):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs).flatten(0, 1), targets)
            loss.backward()
            optimizer.step()
            yield loss.item()

    assert list(losses(there, device)) == pytest.approx(list(losses(here, "cpu")), rel=1e-4)


def test_the_data_of_a_tensor_may_be_of_the_device_and_back(device):
    parameter = nn.Parameter(torch.ones(2))
    parameter.data = torch.full((3,), 2.0, device=device)
    assert parameter.device.type == device and parameter.requires_grad
    (parameter * 3).sum().backward()
    assert parameter.grad.tolist() == [3, 3, 3] and parameter.grad.device == parameter.device
    parameter.grad = None
    parameter.data = torch.ones(1)
    parameter.sum().backward()
    assert parameter.grad.device.type == "cpu"
    with pytest.raises(RuntimeError, match="incompatible"):
        parameter.data = torch.ones(1, device="meta")


def test_a_lazy_layer_gets_its_weights_on_the_device(device):
    layer = nn.LazyLinear(4).to(device)
    assert layer(torch.ones(2, 3, device=device)).shape == (2, 4)
    assert layer.weight.device.type == device


def test_buffers_hooks_and_gradients_go_with_the_model(device):
    layer = nn.BatchNorm1d(3)
    layer(torch.randn(5, 3)).sum().backward()
    gradient = layer.bias.grad.clone()
    layer.to(device)
    assert layer.running_mean.device.type == layer.bias.grad.device.type == device
    assert torch.equal(layer.bias.grad.cpu(), gradient)
    seen = []
    layer.bias.register_hook(lambda gradient: seen.append(gradient.device.type))
    layer(torch.randn(5, 3, device=device)).sum().backward()
    assert seen == [device] and torch.equal(layer.bias.grad.cpu(), 2 * gradient)
