"""The CPU in the place of the device: which tensors it may get, and what becomes of them afterwards."""

import gc

import pytest
import torch
from torch.nn import functional as F

KEPT = []
OUTER = {}


@torch.library.custom_op("device_torch_tests::keeps", mutates_args=(), device_types="cpu")
def keeps(x: torch.Tensor) -> torch.Tensor:
    KEPT.append(x)
    return x + 1


@torch.library.custom_op("device_torch_tests::computes_elsewhere", mutates_args=("x",), device_types="cpu")
def computes_elsewhere(x: torch.Tensor) -> None:
    x += (OUTER["tensor"] * 2).cpu().sum()


@torch.library.custom_op("device_torch_tests::fails", mutates_args=("x",), device_types="cpu")
def fails(x: torch.Tensor) -> None:
    KEPT.append(x)
    raise KeyError("from the kernel")


@pytest.mark.parametrize("len", [4, 1 << 18])
def test_a_kernel_may_keep_its_argument(device, module, len):
    KEPT.clear()
    tensor = torch.full((len,), 5.0, device=device)
    assert keeps(tensor)[0].item() == 6
    del tensor
    gc.collect()
    module.empty_cache()
    other = torch.full((len,), 9.0, device=device)
    assert KEPT[0].sum().item() == 5 * len
    KEPT[0].fill_(7)
    assert other.sum().item() == 9 * len


@pytest.mark.parametrize("len", [4, 1 << 20])
def test_a_kernel_may_compute_on_the_device(device, len):
    tensor = torch.ones(len, device=device)
    OUTER["tensor"] = tensor
    computes_elsewhere(tensor)
    assert tensor[-1].item() == 1 + 2 * len


def test_an_error_of_a_kernel_arrives_and_what_it_kept_is_its_own(device):
    KEPT.clear()
    tensor = torch.full((1000,), 5.0, device=device)
    with pytest.raises(KeyError, match="from the kernel"):
        fails(tensor)
    tensor.fill_(9)
    assert KEPT[0].tolist() == [5] * 1000 and (tensor + 1).sum().item() == 10_000


@pytest.fixture
def replaced():
    """Replaces the CPU's own kernels of operators during a test."""
    library = torch.library.Library("aten", "IMPL", "CPU")

    def replace(name, kernel):
        library.impl(name, kernel, allow_override=True)

    yield replace
    library._destroy()


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_what_a_replaced_kernel_of_pytorch_keeps_is_its_own(device, replaced):
    kept = []

    def digamma(x, out):
        kept.append(x)
        return out.copy_(x)

    replaced("digamma.out", digamma)
    tensor = torch.full((1000,), 5.0, device=device)
    tensor.digamma()
    tensor.fill_(9)
    assert kept and kept[0].tolist() == [5] * 1000


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_a_replaced_kernel_that_computes_on_the_device_never_waits_for_itself(device, replaced):
    def digamma(x, out):
        return out.copy_((tensor * 2).cpu())

    replaced("digamma.out", digamma)
    for len in (4, 1 << 20):
        tensor = torch.ones(len, device=device)
        try:
            # Right where the CPU has a copy, and an error where it computes in the bytes of the device.
            assert tensor.digamma()[-1].item() == 2
        except RuntimeError as error:
            assert "used the device" in str(error)
        assert (tensor + 1).sum().item() == 2 * len


def where_cpu_tensors_are_refused():
    """What CUDA refuses as well: a function of tensors of the device `t` and of the CPU `c`."""
    ints = torch.long
    return {
        "a target": lambda t, c: F.cross_entropy(t.ones(2, 3), c.tensor([0, 1])),
        "gather": lambda t, c: t.ones(3).gather(0, c.tensor([0])),
        "take": lambda t, c: t.ones(3).take(c.tensor([0])),
        "index_select": lambda t, c: t.ones(3).index_select(0, c.tensor([0])),
        "scatter": lambda t, c: t.ones(3).scatter(0, c.tensor([0]), 2.0),
        "masked_fill": lambda t, c: t.ones(2).masked_fill(c.tensor([True, False]), 0),
        "masked_select": lambda t, c: t.ones(2).masked_select(c.tensor([True, False])),
        "where": lambda t, c: torch.where(c.tensor([True, False]), t.ones(2), t.zeros(2)),
        "cat": lambda t, c: torch.cat([t.ones(1, dtype=ints), c.ones(1, dtype=ints)]),
        "a sum of integers": lambda t, c: t.ones(3, dtype=ints) + c.ones(3, dtype=ints),
        "a product of integers": lambda t, c: t.ones(2, 2, dtype=ints) @ c.ones(2, 2, dtype=ints),
        "an embedding": lambda t, c: F.embedding(c.tensor([0]), t.ones(2, 2)),
        "a result": lambda t, c: torch.add(t.ones(2, dtype=ints), 1, out=c.zeros(2, dtype=ints)),
        "a result without dimensions": lambda t, c: torch.sum(t.ones(2, dtype=ints), 0, out=c.tensor(0)),
        "floats": lambda t, c: t.ones(2) * c.ones(2),
        "no kernel": lambda t, c: torch.bucketize(t.ones(2), c.tensor([0, 2])),
    }


class On:
    """Makes tensors on a device."""

    def __init__(self, device):
        self.device = device

    def __getattr__(self, name):
        return lambda *values, **options: getattr(torch, name)(*values, device=self.device, **options)


@pytest.mark.parametrize("name", where_cpu_tensors_are_refused())
def test_a_tensor_of_the_cpu_is_refused_beside_one_of_the_device(device, name):
    with pytest.raises(RuntimeError, match="same device.*cpu"):
        where_cpu_tensors_are_refused()[name](On(device), On("cpu"))


def test_numbers_indices_and_lengths_may_be_on_the_cpu(device):
    tensor = torch.arange(6.0, device=device).reshape(3, 2)
    assert (tensor + torch.tensor(1)).sum().item() == 21
    assert torch.where(tensor > 2, tensor, torch.tensor(0.0)).sum().item() == 12
    assert tensor[torch.tensor([2, 0])].tolist() == [[4, 5], [0, 1]]
    assert tensor[torch.tensor([True, False, True])].tolist() == [[0, 1], [4, 5]]
    tensor[torch.tensor([1])] = 7.0
    assert tensor.tolist() == [[0, 1], [7, 7], [4, 5]]
    packed = torch.nn.utils.rnn.pack_padded_sequence(tensor[:, :, None], torch.tensor([2, 1, 1]), batch_first=True)
    assert packed.data.device.type == device and packed.data[:, 0].tolist() == [0, 7, 4, 1]


def test_bytes_that_have_two_storages_are_computed_with(device):
    values = torch.arange(6.0, device=device)
    again = torch.from_dlpack(values)
    assert again.data_ptr() == values.data_ptr() and again.untyped_storage()._cdata != values.untyped_storage()._cdata
    # No kernel has it.
    torch.cumsum(values, 0, out=again)
    assert values.tolist() == [0, 1, 3, 6, 10, 15]


def test_a_histogram_of_integers(device):
    values = torch.tensor([1, 2, 2, 3, 9, -4])
    there = torch.histc(values.to(device), bins=4, min=0, max=8)
    assert there.dtype == torch.int64 and there.tolist() == [1, 3, 0, 0]
    out = torch.zeros(2, device=device)
    torch.histc(torch.tensor([0.5, 1.5, 1.6], device=device), bins=2, min=0, max=2, out=out)
    assert out.tolist() == [1, 2]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("kind", "make"),
    {
        "Quantized": lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.quint8),
        "Sparse": lambda t: t.to_sparse(),
        "Sparse ": lambda t: torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (2,), device=t.device),
        "Sparse  ": lambda t: t.reshape(1, 2).to_sparse_csr(),
        "Nested": lambda t: torch.nested.nested_tensor([t, t]).sum(0),
    }.items(),
)
def test_a_kind_of_tensor_that_is_of_the_cpu_alone_says_so(device, kind, make):
    with pytest.raises(NotImplementedError, match=f"{kind.strip()} tensors are not supported on .*{device}"):
        make(torch.ones(2, device=device))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nested_tensors_are_computed_with_and_end_no_process(device):
    def outcome(where):
        torch.manual_seed(3)
        rows = [torch.randn(2, 4).to(where).requires_grad_(), torch.randn(3, 4).to(where).requires_grad_()]
        layer = torch.nn.Linear(4, 2).to(where)
        nested = torch.nested.as_nested_tensor(rows)
        result = torch.nested.to_padded_tensor(layer(nested), 0.0)
        result.square().sum().backward()
        jagged = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
        return [result, rows[0].grad, rows[1].grad, layer.weight.grad, jagged.sin().values(), *nested.unbind()]

    for there, here in zip(outcome(device), outcome("cpu")):
        assert there.device.type == device
        torch.testing.assert_close(there.detach().cpu(), here.detach(), rtol=1e-4, atol=1e-5)


def test_an_operator_that_neither_side_has_says_so(device):
    with pytest.raises(NotImplementedError) as caught:
        torch._cudnn_init_dropout_state(0.5, True, 1, device=device, dtype=torch.uint8)
    text = str(caught.value)
    assert text.startswith("aten::_cudnn_init_dropout_state has no kernel on `") and "none for the CPU" in text
    assert len(text.splitlines()) == 1


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_result_that_the_cpu_has_made_longer_lies_as_the_cpu_laid_it(device):
    def outcome(where):
        parts = torch.arange(6.0, device=where).reshape(2, 3).t()
        out = torch.zeros(0, dtype=torch.complex64, device=where)
        return torch.complex(parts, parts, out=out)

    there, here = outcome(device), outcome("cpu")
    assert there.stride() == here.stride() and torch.equal(there.cpu(), here)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int32, torch.bool])
def test_new_memory_has_a_known_value_where_the_program_wants_it(device, dtype):
    def made(where):
        options = {"device": where, "dtype": dtype}
        torch.use_deterministic_algorithms(True)
        try:
            return [
                torch.empty(3, **options), torch.empty_strided((2, 2), (1, 2), **options),
                torch.zeros(2, **options).resize_(4), torch.empty_like(torch.ones(2, **options)),
            ]  # fmt: skip
        finally:
            torch.use_deterministic_algorithms(False)

    for there, here in zip(made(device), made("cpu")):
        # NaN, or the largest integer: as text, since NaN is not equal to itself.
        assert str(there.tolist()) == str(here.tolist())
