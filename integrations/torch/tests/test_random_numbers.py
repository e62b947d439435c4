"""Random numbers of the device are its generator's, whatever computes them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def attention(device):
    parts = [torch.ones(1, 1, 4, 8, device=device) for _ in range(3)]
    return F.scaled_dot_product_attention(*parts, dropout_p=0.5)


DRAWS = {
    "dropout": lambda device: F.dropout(torch.ones(64, device=device), 0.5),
    "dropout in place": lambda device: F.dropout(torch.ones(64, device=device), 0.5, inplace=True),
    "dropout of channels": lambda device: F.dropout2d(torch.ones(8, 8, 2, 2, device=device)),
    "rrelu": lambda device: F.rrelu(-torch.ones(64, device=device), training=True),
    "attention": attention,
    "rand": lambda device: torch.rand(4, device=device),
    "randperm": lambda device: torch.randperm(64, device=device),
    "bernoulli": lambda device: torch.bernoulli(torch.ones(64, device=device) / 2),
    "multinomial": lambda device: torch.multinomial(torch.ones(64, device=device), 32),
    "poisson": lambda device: torch.poisson(torch.ones(64, device=device) * 9),
    "gamma": lambda device: torch._standard_gamma(torch.ones(4, device=device)),
    "exponential": lambda device: torch.empty(4, device=device).exponential_(),
    "gumbel": lambda device: F.gumbel_softmax(torch.ones(2, 8, device=device)),
    "maxima": lambda device: F.fractional_max_pool2d(torch.rand(1, 8, 9, 9, device=device), 3, output_size=4),
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_come_from_the_generator_of_the_device_alone(device, module, name):
    on_the_cpu, on_the_device = torch.get_rng_state(), module.get_rng_state()
    first = DRAWS[name](device)
    assert torch.equal(torch.get_rng_state(), on_the_cpu)
    assert not torch.equal(module.get_rng_state(), on_the_device)
    assert not torch.equal(DRAWS[name](device), first)
    module.set_rng_state(on_the_device)
    assert torch.equal(DRAWS[name](device), first)


def test_dropout_of_a_recurrent_network_repeats_with_the_seed_of_the_device(device, module):
    network = nn.LSTM(3, 4, 2, dropout=0.5).to(device)
    values = torch.ones(2, 8, 3, device=device)
    module.manual_seed(5)
    first = network(values)[0]
    assert not torch.equal(network(values)[0], first)
    module.manual_seed(5)
    assert torch.equal(network(values)[0], first)
