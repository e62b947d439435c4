"""Tensors: views, copies, storages, files and errors."""

import copy
import io
import pickle

import pytest
import torch

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64,
]  # fmt: skip


def on(device, values):
    """The values of the CPU on the device, which are still those of the CPU."""
    there = values.to(device)
    assert there.device.type == torch.device(device).type
    assert torch.equal(there.cpu(), values)
    return there


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_of_all_types_go_there_and_back(device, dtype):
    values = torch.arange(-6, 6).reshape(3, 4).to(dtype)
    there = on(device, values)
    assert there.dtype == dtype
    assert torch.equal(there.t().cpu(), values.t())
    assert torch.equal(there[1:, ::2].cpu(), values[1:, ::2])
    assert there[2, 1].item() == values[2, 1].item()


# PyTorch warns where a complex number loses its imaginary part.
@pytest.mark.parametrize("dtype", DTYPES[:-1])
@pytest.mark.parametrize("other", [torch.float32, torch.int64, torch.bool, torch.float16])
def test_a_conversion_gives_what_the_cpu_gives(device, dtype, other):
    values = torch.arange(-6, 6).reshape(3, 4).to(dtype)
    assert torch.equal(values.to(device).to(other).cpu(), values.to(other))
    assert torch.equal(values.to(device, other).cpu(), values.to(other))


def test_views_share_their_memory(device):
    base = on(device, torch.arange(24.0).reshape(4, 6))
    views = {
        "slice": base[1:3],
        "transpose": base.t(),
        "stride": base[:, ::2],
        "strided": base.as_strided((2, 3), (6, 2), 1),
        "unfold": base.unfold(1, 3, 2),
        "expand": base[:1].expand(3, 6),
        "reshape": base.view(2, 12),
        "alias": base.reshape(24),
        "type": base.view(torch.int32),
        "complex": torch.view_as_complex(base.view(4, 3, 2)),
    }
    for name, view in views.items():
        assert view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr(), name
    real = torch.view_as_real(views["complex"])
    assert real.data_ptr() == base.data_ptr()
    base.fill_(3)
    for name, view in views.items():
        if name not in ("type", "complex"):
            assert (view == 3).all(), name
    views["strided"].fill_(5)
    assert torch.equal(base.cpu().as_strided((2, 3), (6, 2), 1), torch.full((2, 3), 5.0))
    assert base.cpu().sum() == 3 * 18 + 5 * 6
    del base
    assert views["alias"].cpu()[0] == 3


def test_a_write_to_a_view_with_gaps_keeps_what_is_between(device):
    values = torch.arange(20.0).reshape(4, 5)
    there = on(device, values)
    there[:, 1:3] = torch.zeros(4, 2)
    there[::2, 4] = torch.tensor([7.0, 8.0], device=device)
    values[:, 1:3] = 0
    values[::2, 4] = torch.tensor([7.0, 8.0])
    assert torch.equal(there.cpu(), values)
    # By an operator that no kernel has.
    there[:, ::2].cumsum_(0)
    values[:, ::2].cumsum_(0)
    assert torch.equal(there.cpu(), values)


def test_elements_that_overlap_are_written_as_on_the_cpu(device):
    def outcome(where, write):
        tensor = torch.zeros(3, device=where).expand(2, 3)
        try:
            write(tensor)
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return tensor.tolist()

    for write in (lambda t: t.add_(1), lambda t: t.copy_(torch.ones(2, 3)), lambda t: t.cumsum_(0), lambda t: t.fill_(2)):
        assert outcome(device, write) == outcome("cpu", write)

    def shifted(where):
        tensor = torch.arange(6.0, device=where)
        try:
            tensor[1:].mul_(tensor[:-1])
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return tensor.tolist()

    assert shifted(device) == shifted("cpu")


def test_a_copy_onto_itself_changes_nothing(device):
    values = torch.arange(6.0).reshape(2, 3)
    there = on(device, values)
    for name in (there, there.detach(), there[:], there.view(2, 3)):
        there.copy_(name)
    assert torch.equal(there.cpu(), values)
    square = on(device, torch.arange(4.0).reshape(2, 2))
    with pytest.raises(RuntimeError):
        square.copy_(square.t())


def test_conjugates_and_negatives_are_copied_as_they_read(device):
    values = torch.tensor([1 + 2j, 3 - 4j])
    there = values.to(device)
    assert torch.equal(there.conj().cpu(), values.conj().resolve_conj())
    assert torch.equal(values.conj().to(device).cpu(), values.conj().resolve_conj())
    assert torch.equal(there.conj().imag.cpu(), values.conj().imag.resolve_neg())
    target = torch.zeros(2, dtype=torch.complex64, device=device)
    target.conj().copy_(there)
    assert torch.equal(target.cpu(), values.conj().resolve_conj())
    assert torch.equal((there.conj() * there).cpu(), values.conj() * values)


def test_tensors_print_as_those_of_the_cpu(device):
    text = repr(torch.tensor([[1.5, -2.0], [0.25, 3.0]], device=device))
    assert text == f"tensor([[ 1.5000, -2.0000],\n        [ 0.2500,  3.0000]], device='{device}:0')"
    assert repr(torch.zeros(0, 3, device=device)) == f"tensor([], device='{device}:0', size=(0, 3))"
    assert repr(torch.tensor(4, device=device)) == f"tensor(4, device='{device}:0')"


def test_a_tensor_becomes_longer_and_keeps_its_elements(device):
    tensor = on(device, torch.arange(4.0))
    tensor.resize_(8)
    tensor[4:] = 9
    assert tensor.tolist() == [0, 1, 2, 3, 9, 9, 9, 9]
    tensor.untyped_storage().resize_(0)
    assert tensor.untyped_storage().nbytes() == 0
    other = torch.zeros(2, device=device)
    other.set_(on(device, torch.ones(3)))
    assert other.tolist() == [1, 1, 1] and not other.is_set_to(tensor)
    same = torch.tensor([], device=device).set_(other.untyped_storage(), 1, (2,), (1,))
    assert same.tolist() == [1, 1] and same.is_set_to(other[1:])


def test_files_and_copies_have_the_device(device, module):
    layer = torch.nn.Linear(3, 2).to(device)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["weight"].device == torch.device(device, 0)
    assert torch.equal(loaded["weight"].cpu(), layer.weight.detach().cpu())
    file.seek(0)
    assert torch.load(file, map_location="cpu")["bias"].device.type == "cpu"
    file = io.BytesIO()
    torch.save(torch.nn.Linear(3, 2).state_dict(), file)
    file.seek(0)
    last = module.device_count() - 1
    assert torch.load(file, map_location=f"{device}:{last}")["bias"].device == torch.device(device, last)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert twin.weight.device == layer.weight.device and twin.weight.data_ptr() != layer.weight.data_ptr()
        assert torch.equal(twin.weight.detach().cpu(), layer.weight.detach().cpu())


def test_devices_copy_to_each_other(two_devices):
    first, second = two_devices
    values = torch.randn(5, 7)
    there = values.to(first)
    assert torch.equal(there.to(second).cpu(), values)
    assert torch.equal(there.t()[1:].to(second, torch.float64).cpu(), values.t()[1:].double())
    target = torch.zeros(7, 5, device=second)
    target.t().copy_(there)
    assert torch.equal(target.cpu(), values.t())
    with pytest.raises(RuntimeError, match="same device"):
        there + values.to(second)
    with pytest.raises(RuntimeError, match="same device"):
        values.to(first).take(torch.tensor([0, 1], device=second))


def test_errors_are_those_of_pytorch_and_of_the_registry(device):
    tensor = torch.zeros(2, 3, device=device)
    with pytest.raises(RuntimeError, match="same device"):
        tensor @ torch.ones(3, 2)
    with pytest.raises(RuntimeError, match="size"):
        tensor + torch.zeros(4, device=device)
    with pytest.raises(TypeError, match="can't convert"):
        tensor.numpy()
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
    with pytest.raises(IndexError):
        tensor[5]


def test_an_address_is_not_used_again_for_long(device):
    seen = {torch.zeros(4, device=device).data_ptr() for _ in range(1000)}
    assert len(seen) == 1000
