"""Results have the order of elements that their inputs have, as on the CPU and as PyTorch's fake tensors predict."""

import pytest
import torch
from torch.nn import functional as F

# By name, what makes a result of an image, whose elements lie as they do with `torch.channels_last`.
OPERATORS = {
    "relu": F.relu,
    "abs": torch.abs,
    "where": lambda x: torch.where(x > 0, x, x * 2),
    "clamp": lambda x: x.clamp(0, 1),
    "maximum": lambda x: torch.maximum(x, x * 2),
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "mse_loss": lambda x: F.mse_loss(x, x * 2, reduction="none"),
    "l1_loss": lambda x: F.l1_loss(x, x * 2, reduction="none"),
    "batch_norm in training": lambda x: F.batch_norm(x, None, None, training=True),
    "batch_norm in use": lambda x: F.batch_norm(x, x.new_zeros(3), x.new_ones(3)),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "group_norm": lambda x: F.group_norm(x, 3),
    "replicate pad": lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
    "add": lambda x: x + 1,
    "gelu": F.gelu,
    "dropout": lambda x: F.dropout(x, 0.5),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_a_result_and_a_gradient_lie_as_on_the_cpu(device, name):
    def strides(where):
        x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).to(where).requires_grad_()
        result = OPERATORS[name](x)
        if not result.requires_grad:
            return result.stride(), None
        (gradient,) = torch.autograd.grad(result.sum(), x)
        return result.stride(), gradient.stride()

    assert strides(device) == strides("cpu")


@pytest.mark.parametrize("name", ["relu", "abs", "where", "maximum"])
def test_elements_of_a_transposed_result_are_where_the_cpu_has_them(device, name):
    def elements(where):
        result = OPERATORS[name](torch.arange(6.0).reshape(2, 3).sub(2).to(where).t())
        return result.as_strided((6,), (1,)).cpu(), result.t().view(-1).cpu()

    for there, here in zip(elements(device), elements("cpu")):
        assert torch.equal(there, here)


@pytest.mark.parametrize(
    "function",
    {
        "a part with gaps": lambda x: F.relu(x[:, ::2].t()),
        "a repeated row": lambda x: F.relu(x[:, :1].expand(3, 5)),
        "several shapes": lambda x: torch.where(x[:, :1] > 0, x.t()[:3].t(), 0.0),
        "types": lambda x: (x > 0).t().logical_and(x[:, 0] > 0),
        "an element": lambda x: F.relu(x[0, 0]),
        "nothing": lambda x: F.relu(x.t()[:0]),
    }.items(),
    ids=lambda case: case[0],
)
def test_an_order_of_dimensions_is_that_of_the_cpu(device, function):
    x = torch.arange(15.0).reshape(3, 5).sub(6)
    here, there = function[1](x), function[1](x.to(device))
    assert there.stride() == here.stride() and torch.equal(there.cpu(), here)


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_convolution_lies_as_the_fake_tensors_of_the_device_say(device, channels_last):
    order = torch.channels_last if channels_last else torch.contiguous_format
    images, weights = torch.randn(2, 3, 5, 6).to(memory_format=order), torch.randn(4, 3, 3, 3)
    compiled = torch.compile(lambda x, w: F.conv2d(x, w).flatten(1), backend="aot_eager")
    there = [tensor.to(device).requires_grad_() for tensor in (images, weights)]
    here = [tensor.clone().requires_grad_() for tensor in (images, weights)]
    result, expected = compiled(*there), F.conv2d(*here).flatten(1)
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)
    result.sum().backward()
    expected.sum().backward()
    for a, b in zip(there, here):
        torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_an_output_that_is_made_longer_lies_as_on_the_cpu(device, dtype):
    def stride(where):
        parts = [torch.ones(10, 5, device=where).t().contiguous().t() for _ in range(2)]
        made = torch.complex(*parts) if dtype.is_complex else torch.add(*parts, out=torch.empty(0, device=where))
        return made.stride()

    assert stride(device) == stride("cpu") == (1, 10)


@pytest.mark.parametrize("name", ["relu", "where", "batch_norm in training"])
def test_a_compiled_view_of_a_result_is_that_of_the_cpu(device, name):
    def computed(where):
        x = torch.arange(120.0).reshape(2, 3, 4, 5).sin().to(memory_format=torch.channels_last).to(where)
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: OPERATORS[name](x).permute(0, 2, 3, 1).view(-1).cumsum(0), backend="aot_eager")
        return compiled(x)

    torch.testing.assert_close(computed(device).cpu(), computed("cpu"), rtol=1e-4, atol=1e-4)
