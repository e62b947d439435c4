"""Autocast: the operators that have a rule, and all others."""

import pytest
import torch
from torch import nn

HALVES = [torch.bfloat16, torch.float16]


def test_products_are_computed_in_half_the_precision(device):
    layer = nn.Linear(4, 3).to(device)
    inputs = torch.randn(2, 4, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        result = layer(inputs)
        assert result.dtype == torch.bfloat16
        assert result.softmax(-1).dtype == torch.float32
    result.float().sum().backward()
    assert layer.weight.grad.dtype == torch.float32
    assert torch.allclose(result.float(), layer(inputs), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", HALVES)
def test_an_operator_without_a_rule_computes_with_what_it_gets(device, dtype):
    def outcome(where):
        inputs = torch.arange(8.0).reshape(2, 4).to(where)
        with torch.autocast(where, dtype=dtype):
            product = inputs @ inputs.t()
            return [
                product, torch.relu(product), torch.ones_like(product), product.clone().fill_(2), product.t(),
                product + inputs[:, :2], torch.cat([product, inputs], 1), product.abs(), inputs[0],
                torch.zeros(2, device=where), product.float().flip(0),
            ]  # fmt: skip

    for there, here in zip(outcome(device), outcome("cpu")):
        assert there.dtype == here.dtype
        torch.testing.assert_close(there.cpu(), here, rtol=0.02, atol=0.02)


def test_random_numbers_are_drawn_inside(device):
    with torch.autocast(device, dtype=torch.bfloat16):
        drawn = torch.randn(1000, device=device)
        dropped = nn.functional.dropout(torch.ones(1000, device=device), 0.5)
    assert drawn.dtype == torch.float32 and abs(drawn.mean().item()) < 0.2
    assert set(dropped.unique().tolist()) == {0.0, 2.0}


def test_a_network_trains_with_a_scaler_as_on_the_cpu(device):
    def losses(where):
        torch.manual_seed(4)
        network = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 3)).to(where)
        inputs, targets = torch.randn(32, 6).to(where), torch.randn(32, 3).to(where)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler(where, init_scale=64.0)
        for step in range(8):
            optimizer.zero_grad()
            with torch.autocast(where, dtype=torch.float16):
                loss = nn.functional.mse_loss(network(inputs).float(), targets)
            # A step whose gradients are infinite is left out, and halves the scale.
            scaler.scale(loss * (float("inf") if step == 3 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
            yield loss.item(), scaler.get_scale()

    there, here = list(losses(device)), list(losses("cpu"))
    assert [scale for _, scale in there] == [scale for _, scale in here] == [64.0] * 3 + [32.0] * 5
    assert [loss for loss, _ in there] == pytest.approx([loss for loss, _ in here], rel=0.02)
    assert there[0] != there[-1]


def test_a_function_of_the_program_chooses_its_type(device):
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=device, cast_inputs=torch.float32)
        def forward(context, x):
            assert not torch.is_autocast_enabled(device)
            context.save_for_backward(x)
            return x @ x

        @staticmethod
        @torch.amp.custom_bwd(device_type=device)
        def backward(context, gradient):
            (x,) = context.saved_tensors
            return gradient @ x.t() + x.t() @ gradient

    x = torch.ones(2, 2, device=device, requires_grad=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        result = Double.apply(x)
    assert result.dtype == torch.float32
    result.sum().backward()
    assert x.grad.tolist() == [[4, 4], [4, 4]]


def test_a_checkpoint_repeats_its_types(device):
    layer = nn.Linear(4, 4).to(device)
    inputs = torch.randn(3, 4, device=device, requires_grad=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        result = torch.utils.checkpoint.checkpoint(lambda x: layer(x).relu(), inputs, use_reentrant=False)
        expected = layer(inputs).relu()
    assert result.dtype == torch.bfloat16
    gradients = [torch.autograd.grad(value.float().sum(), inputs)[0] for value in (result, expected)]
    assert torch.equal(*(gradient.cpu() for gradient in gradients))
