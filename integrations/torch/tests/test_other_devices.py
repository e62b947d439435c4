"""What PyTorch does for its own devices by their names, and for this one: with the results of the CPU, or an error."""

import functools
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def same(there, here):
    torch.testing.assert_close(there.detach().cpu(), here.detach(), rtol=1e-4, atol=1e-5)


# --- Lists that have this device ---

FORMS = {
    "Adam": (torch.optim.Adam, ["foreach", "fused", "capturable"]),
    "AdamW": (torch.optim.AdamW, ["foreach", "fused", "capturable"]),
    "SGD": (functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9), ["foreach", "fused"]),
    "Adagrad": (torch.optim.Adagrad, ["foreach", "fused"]),
    "RMSprop": (torch.optim.RMSprop, ["foreach", "capturable"]),
    "NAdam": (torch.optim.NAdam, ["foreach", "capturable"]),
}


@pytest.mark.parametrize(("name", "form"), [(name, form) for name, (_, forms) in FORMS.items() for form in forms])
def test_optimizers_of_each_form_train_as_on_the_cpu(device, name, form):
    start = torch.randn(5, 3)

    def trained(where, **options):
        weight = nn.Parameter(start.to(where))
        optimizer = FORMS[name][0]([weight], **options)
        for _ in range(3):
            optimizer.zero_grad()
            weight.square().sum().backward()
            optimizer.step()
        return weight

    there = trained(device, **{form: True})
    assert there.device.type == device
    same(there, trained("cpu"))


def test_simulated_quantization(device):
    values = torch.randn(8)

    def trained(where):
        layer = torch.ao.quantization.FusedMovingAvgObsFakeQuantize(averaging_constant=0.5).to(where)
        results = [layer(values.to(where)), layer(values.to(where) * 2)]
        return [*results, layer.scale, layer.activation_post_process.min_val, layer.activation_post_process.max_val]

    for there, here in zip(trained(device), trained("cpu")):
        same(there, here)


def test_jagged_tensors_are_computed(device):
    weight = torch.randn(5, 4)

    def computed(where):
        parts = [torch.arange(8.0).reshape(2, 4), torch.ones(3, 4)]
        nested = torch.nested.nested_tensor(parts, device=where, layout=torch.jagged)
        return F.linear(nested, weight.to(where)).values(), torch.softmax(nested, -1).values()

    for there, here in zip(computed(device), computed("cpu")):
        same(there, here)


def test_deterministic_algorithms_compute_as_on_the_cpu(device):
    values = torch.randn(1, 2, 4, 4)

    def computed(where):
        leaf = values.to(where).requires_grad_()
        F.pad(leaf, (1, 2, 1, 0), mode="replicate").square().sum().backward()
        zeros = torch.zeros(3, device=where)
        added = zeros.index_add(0, torch.tensor([0, 0], device=where), torch.ones(2, device=where))
        return leaf.grad, added

    torch.use_deterministic_algorithms(True)
    try:
        results = zip(computed(device), computed("cpu"))
    finally:
        torch.use_deterministic_algorithms(False)
    for there, here in results:
        same(there, here)


def test_sums_of_halves_in_another_type(device):
    # The sum of as many halves as these is not one of them.
    halves = torch.ones(4099, dtype=torch.float16)
    total = halves.to(device).sum(dtype=torch.float32)
    assert total.dtype == torch.float32 and total.item() == 4099


def test_fake_tensors_have_the_device(device):
    with torch._subclasses.FakeTensorMode():
        result = F.linear(torch.ones(2, 3, device=device), torch.ones(4, 3, device=device))
    assert result.device == torch.device(device, 0) and result.shape == (2, 4)


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_storages_are_those_of_the_device(device):
    tensor = torch.tensor([1.0, 2.0], device=device)
    assert tensor.type() == f"torch.{device}.FloatTensor"
    assert torch.ones(2).type(f"torch.{device}.DoubleTensor").device.type == device
    storage = tensor.untyped_storage()
    expected = torch.tensor([1.0, 2.0]).untyped_storage().tolist()
    assert storage.device.type == device and storage.cpu().tolist() == expected
    moved = getattr(torch.tensor([1.0, 2.0]).untyped_storage(), device)()
    assert moved.device.type == device and moved.tolist() == storage.tolist()
    typed = torch.TypedStorage(2, dtype=torch.float32, device=device)
    typed.fill_(3)
    assert typed.tolist() == [3, 3]


# --- Programs that name a device ---


def test_a_fork_of_the_generators_has_that_of_the_device(device, module):
    before = module.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type=device):
        torch.rand(3, device=device)
    assert torch.equal(module.get_rng_state(), before)
    torch.rand(3, device=device)
    assert not torch.equal(module.get_rng_state(), before)


def test_saved_tensors_may_wait_on_the_cpu(device):
    values = torch.randn(3)
    leaf = values.to(device).requires_grad_()
    with torch.autograd.graph.save_on_cpu(pin_memory=True, device_type=device):
        result = leaf.exp() * leaf
    result.sum().backward()
    same(leaf.grad, values.exp() * (1 + values))


def test_a_gradient_is_computed_on_the_stream_of_its_forward_pass(device):
    streams = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(_, values):
            return values * 2

        @staticmethod
        def backward(_, gradient):
            streams.append(torch.accelerator.current_stream())
            return gradient * 2

    leaf = torch.ones(3, device=device, requires_grad=True)
    stream = torch.Stream(device)
    with stream:
        result = Twice.apply(leaf).sum()
    result.backward()
    torch.accelerator.synchronize()
    assert streams == [stream] and leaf.grad.tolist() == [2, 2, 2]


def test_random_numbers_of_vmap(device):
    def drawn(_):
        return torch.rand(3, device=device)

    rows = torch.zeros(2, device=device)
    first, second = torch.vmap(drawn, randomness="different")(rows)
    assert not torch.equal(first, second)
    first, second = torch.vmap(drawn, randomness="same")(rows)
    assert torch.equal(first, second)


def test_an_operator_of_the_program_has_a_kernel_for_the_device(device):
    @torch.library.custom_op("device_torch_tests::only_there", mutates_args=(), device_types=device)
    def only_there(values: torch.Tensor) -> torch.Tensor:
        assert values.device.type == device
        return values + 7

    assert only_there(torch.ones(2, device=device)).tolist() == [8, 8]
    with pytest.raises(NotImplementedError):
        only_there(torch.ones(2))

    library = torch.library.Library("device_torch_tests", "FRAGMENT")
    library.define("there_too(Tensor values) -> Tensor")
    torch.library.impl("device_torch_tests::there_too", device, lambda values: values + 5, lib=library)
    assert torch.ops.device_torch_tests.there_too(torch.ones(2, device=device)).tolist() == [6, 6]


def test_a_distributed_checkpoint_of_one_process(device, tmp_path):
    from torch.distributed import checkpoint as files

    with warnings.catch_warnings(action="ignore"):
        files.save({"weight": torch.tensor([1.0, 2.0], device=device)}, checkpoint_id=tmp_path, no_dist=True)
        loaded = {"weight": torch.zeros(2, device=device)}
        files.load(loaded, checkpoint_id=tmp_path, no_dist=True)
    assert loaded["weight"].device.type == device and loaded["weight"].tolist() == [1, 2]


# --- What is absent ---


@pytest.mark.parametrize(
    "compute",
    [
        lambda values: torch.mm(values[0].bfloat16(), values[0].t().bfloat16(), out_dtype=torch.float32),
        lambda values: torch._convert_weight_to_int4pack(values[0].int(), 2),
        lambda values: torch.cudnn_grid_sampler(values[None], values[None]),
    ],
    ids=["out_dtype", "pack", "cudnn"],
)
def test_an_operator_of_one_device_alone_is_an_error(device, compute):
    with pytest.raises(NotImplementedError, match="PyTorch has none for the CPU"):
        compute(torch.ones(2, 3, 4, device=device))


@pytest.mark.parametrize(
    ("error", "text", "use"),
    [
        (RuntimeError, "native handle", lambda device: torch.Stream(device).native_handle),
        (RuntimeError, "Graph is not supported", lambda _: torch.accelerator.Graph()),
        (ValueError, "FlexAttention is only supported on", lambda device: _flex_attention(device)),
    ],
    ids=["native handle", "graph", "flex attention"],
)
def test_what_is_absent_of_a_device_is_an_error_that_says_so(device, error, text, use):
    with warnings.catch_warnings(action="ignore"), pytest.raises(error, match=text):
        use(device)


def _flex_attention(device):
    from torch.nn.attention.flex_attention import flex_attention

    query = torch.ones(1, 1, 16, 8, device=device)
    return flex_attention(query, query, query)
