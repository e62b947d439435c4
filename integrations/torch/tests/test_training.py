"""Networks, which give what the CPU gives."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(network, inputs, targets, where, steps=8, optimizer=torch.optim.SGD, loss=nn.functional.mse_loss, **options):
    torch.manual_seed(3)
    network = network().to(where)
    inputs, targets = inputs.to(where), targets.to(where)
    optimizer = optimizer(network.parameters(), lr=0.05, **options)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        result = network(inputs)
        value = loss(result[0] if isinstance(result, tuple) else result, targets)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def assert_same(device, *arguments, **options):
    with warnings.catch_warnings():
        # No warning that the CPU does not give.
        warnings.simplefilter("error")
        there = train(*arguments, where=device, **options)
    here = train(*arguments, where="cpu", **options)
    assert here[-1] != here[0]
    assert there == pytest.approx(here, rel=2e-4, abs=1e-6)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_a_multilayer_perceptron(device, optimizer):
    def network():
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))

    assert_same(device, network, torch.randn(20, 6), torch.randn(20, 3), optimizer=optimizer)


def test_momentum_and_decay(device):
    options = {"momentum": 0.9, "weight_decay": 0.01, "nesterov": True}
    assert_same(device, lambda: nn.Linear(6, 3), torch.randn(20, 6), torch.randn(20, 3), **options)


def test_a_classifier_of_images(device):
    def network():
        return nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 6, 3, stride=2, groups=2), nn.GELU(), nn.AvgPool2d(1), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            nn.Linear(24, 5),
        )  # fmt: skip

    targets = torch.randint(5, (6,))
    assert_same(device, network, torch.randn(6, 2, 12, 12), targets, loss=nn.functional.cross_entropy)


def test_statistics_of_batches_are_kept_and_used(device):
    def outcome(where):
        torch.manual_seed(3)
        network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)).to(where)
        inputs = torch.randn(4, 2, 6, 6).to(where).requires_grad_()
        for _ in range(3):
            network(inputs)
        network.eval()
        network(inputs).square().sum().backward()
        norm = network[1]
        return [norm.running_mean, norm.running_var, norm.weight.grad, norm.bias.grad, inputs.grad]

    for there, here in zip(outcome(device), outcome("cpu")):
        torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_statistics_of_several_processes_are_those_of_the_whole_batch(device, dtype):
    """What `nn.SyncBatchNorm` calls in each process, here for parts of five and of three."""
    torch.manual_seed(3)
    values, slopes = torch.randn(8, 3, 4), torch.randn(8, 3, 4)
    norm = nn.BatchNorm1d(3)
    nn.init.normal_(norm.weight)
    whole = values.clone().requires_grad_()
    norm(whole).backward(slopes)

    weight, bias = norm.weight.detach().to(device), norm.bias.detach().to(device)
    running = torch.zeros(3, device=device), torch.ones(3, device=device)
    parts, gradients = values.to(device, dtype).split([5, 3]), slopes.to(device, dtype).split([5, 3])
    means, scales = map(torch.stack, zip(*[torch.batch_norm_stats(part, norm.eps) for part in parts]))
    counts = torch.tensor([20.0, 12.0], device=device)
    mean, scale = torch.batch_norm_gather_stats_with_counts(
        parts[0], means, scales, *running, norm.momentum, norm.eps, counts)
    results = [torch.batch_norm_elemt(part, weight, bias, mean, scale, norm.eps) for part in parts]
    sums = [
        torch.batch_norm_backward_reduce(gradient, part, mean, scale, weight, True, True, True)
        for gradient, part in zip(gradients, parts)
    ]
    total, product, of_weight, of_bias = (torch.stack(of_parts).sum(0) for of_parts in zip(*sums))
    of_input = [
        torch.batch_norm_backward_elemt(gradient, part, mean, scale, weight, total, product, counts)
        for gradient, part in zip(gradients, parts)
    ]
    norm.eval()
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.05}
    for there, here in [
        (running[0], norm.running_mean), (running[1], norm.running_var), (of_weight, norm.weight.grad),
        (of_bias, norm.bias.grad), (torch.cat(of_input), whole.grad),
        (torch.cat(results), nn.functional.batch_norm(values, None, None, norm.weight, norm.bias, True)),
    ]:  # fmt: skip
        torch.testing.assert_close(there.float().cpu(), here.detach(), **close)
    assert results[0].dtype == of_input[0].dtype == dtype


def test_convolutions_in_one_dimension_and_transposed(device):
    def network():
        return nn.Sequential(nn.Conv1d(2, 4, 3), nn.SiLU(), nn.ConvTranspose1d(4, 2, 3))

    assert_same(device, network, torch.randn(4, 2, 9), torch.randn(4, 2, 9))


def test_a_transformer(device):
    def network():
        return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    assert_same(device, network, torch.randn(3, 5, 8), torch.randn(3, 5, 8), steps=4)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("is_padded", [False, True])
def test_a_transformer_that_is_not_trained_takes_a_mask(device, mode, is_padded):
    torch.manual_seed(3)
    network = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    inputs, mask = torch.randn(2, 3, 8), torch.tensor([[False] * 3, [False, False, True]]) if is_padded else None
    with mode():
        here = network(inputs, src_key_padding_mask=mask)
        there = network.to(device)(inputs.to(device), src_key_padding_mask=mask.to(device) if is_padded else None)
    # The CPU's fast path writes zeros at what is padded.
    rows = (~mask if is_padded else torch.ones(2, 3, dtype=torch.bool))[:, :, None]
    torch.testing.assert_close(there.cpu() * rows, here * rows, rtol=1e-4, atol=1e-5)


def test_attention_is_what_its_choice_says(device):
    query = torch.randn(1, 2, 4, 8)
    there = query.to(device)
    assert torch._fused_sdp_choice(there, there, there) == torch.nn.attention.SDPBackend.MATH.value
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        result = nn.functional.scaled_dot_product_attention(there, there, there, is_causal=True)
    expected = nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_networks(device, cell):
    assert_same(device, lambda: cell(4, 6, 2, batch_first=True), torch.randn(3, 5, 4), torch.randn(3, 5, 6), steps=4)


def test_embeddings(device):
    def network():
        return nn.Sequential(nn.Embedding(10, 6), nn.Flatten(), nn.Linear(24, 4))

    inputs, targets = torch.randint(10, (8, 4)), torch.randint(4, (8,))
    assert_same(device, network, inputs, targets, loss=nn.functional.cross_entropy)


def test_dropout_repeats_with_its_seed(device):
    layer = nn.Dropout(0.4)
    torch.manual_seed(5)
    first = layer(torch.ones(1000, device=device))
    torch.manual_seed(5)
    assert torch.equal(first.cpu(), layer(torch.ones(1000, device=device)).cpu())
    assert 450 < (first != 0).sum().item() < 750


def test_second_derivatives_and_functional_gradients(device):
    def cube(x):
        return (x**3).sum()

    x = torch.tensor([1.0, 2.0], device=device)
    assert torch.func.grad(cube)(x).tolist() == [3, 12]
    assert torch.func.hessian(cube)(x).cpu().diagonal().tolist() == [6, 12]
    assert torch.func.vmap(lambda row: row.sum())(torch.ones(3, 2, device=device)).tolist() == [2, 2, 2]


def test_a_compiled_function(device):
    compiled = torch.compile(lambda x: (x.sin() + 1).relu().sum(), backend="aot_eager")
    x = torch.randn(5, requires_grad=True)
    there = x.detach().to(device).requires_grad_()
    compiled(there).backward()
    (x.sin() + 1).relu().sum().backward()
    assert torch.allclose(there.grad.cpu(), x.grad)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_with_pinned_memory(device, workers):
    data = TensorDataset(torch.arange(12.0).reshape(6, 2))
    loader = DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers, multiprocessing_context=(
        "fork" if workers else None))
    batches = [batch[0] for batch in loader]
    assert all(batch.is_pinned() for batch in batches)
    there = torch.cat([batch.to(device, non_blocking=True) for batch in batches])
    assert torch.equal(there.cpu(), torch.arange(12.0).reshape(6, 2))
