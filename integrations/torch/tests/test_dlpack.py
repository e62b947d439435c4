"""DLPack: exchange with NumPy and within PyTorch, with copies only where the host does not reach the memory."""

import ctypes
import gc

import numpy
import pytest
import torch
from torch.utils import dlpack

EXTENSION, HOST = (12, 0), (1, 0)
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.bool, torch.complex64,
]  # fmt: skip
SHAPES = [(), (1,), (7,), (2, 3), (2, 1, 4), (3, 5, 2, 2)]


def is_shared(tensor):
    """Whether the host reaches the memory of the device without a copy."""
    return torch.ops.device_torch.shared_with_host(tensor) is not None


@pytest.fixture
def reached(device):
    """The device, if the host reaches its memory; else the test is skipped."""
    if not is_shared(torch.zeros(1, device=device)):
        pytest.skip("the host reaches the memory by copies alone")
    return device


# What is refused.


def test_what_dlpack_cannot_say_is_an_error(device):
    there = torch.ones(3, device=device)
    with pytest.raises(BufferError, match="require gradient"):
        numpy.from_dlpack(there.clone().requires_grad_())
    with pytest.raises(BufferError, match="conjugate"):
        numpy.from_dlpack(torch.ones(3, dtype=torch.complex64, device=device).conj())
    for wrong in [(99, 0), (2, 0)]:
        with pytest.raises((BufferError, ValueError, RuntimeError)):
            there.__dlpack__(dl_device=wrong)


def test_without_a_way_to_share_copy_false_is_an_error_that_says_so(device):
    there = torch.ones(3, device=device)
    if is_shared(there):
        assert numpy.from_dlpack(there, copy=False).tolist() == [1, 1, 1]
    else:
        for arguments in [{"copy": False}, {"copy": False, "device": "cpu"}]:
            with pytest.raises(BufferError, match=f"the memory of `{there.device}` by copies alone, and copy=False"):
                numpy.from_dlpack(there, **arguments)


class Described(ctypes.Structure):
    """The start of DLPack's `DLTensor`."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


@pytest.mark.parametrize("wrong, message", [({"data": 4096}, "0x1000 is not one of"), ({"device_id": 99}, "asked for")])
def test_memory_of_another_extension_device_is_an_error_at_its_first_use(device, wrong, message):
    capsule = dlpack.to_dlpack(torch.ones(4, device=device))
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    described = Described.from_address(pointer(capsule, b"dltensor"))
    for name, value in wrong.items():
        setattr(described, name, value)
    imported = torch.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match=message):
        (imported + 1).cpu()


# To NumPy.


def test_the_device_is_an_extension_device(device, module):
    for index in range(module.device_count()):
        kind, found = torch.zeros(1, device=f"{device}:{index}").__dlpack_device__()
        assert (int(kind), found) == (EXTENSION[0], index)
    assert torch.zeros(1).__dlpack_device__() == HOST


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_has_the_elements_of_each_type(device, dtype):
    values = torch.arange(-6, 6).reshape(3, 4).to(dtype)
    for arguments in [{}, {"device": "cpu"}, {"copy": True}]:
        array = numpy.from_dlpack(values.to(device), **arguments)
        assert array.dtype == values.numpy().dtype
        assert (array == values.numpy()).all()


@pytest.mark.parametrize("shape", [*SHAPES, (0,), (2, 0, 3)])
def test_numpy_has_the_elements_of_each_shape(device, shape):
    values = torch.rand(shape)
    array = numpy.from_dlpack(values.to(device))
    assert array.shape == shape
    assert (array == values.numpy()).all()


def test_numpy_has_the_elements_of_views(device):
    base = torch.arange(24.0).reshape(4, 6)
    there = base.to(device)
    views = [
        lambda x: x.t(), lambda x: x[1:, ::2], lambda x: x[2], lambda x: x[:, 3].expand(5, 4), lambda x: x[1:, 1:].t(),
        lambda x: torch.view_as_complex(x.reshape(4, 3, 2)).imag, lambda x: x[1:1],
    ]  # fmt: skip
    for view in views:
        assert (numpy.from_dlpack(view(there)) == view(base).numpy()).all()
    negative = torch.ones(2, dtype=torch.complex64, device=device).conj().imag
    assert negative.is_neg()
    assert numpy.from_dlpack(negative).tolist() == [0, 0]


def test_numpy_sees_all_work_that_was_queued_before(device):
    there = torch.zeros(1 << 16, device=device)
    for _ in range(50):
        there += 1
    assert (numpy.from_dlpack(there) == 50).all()


def test_numpy_shares_the_memory_where_the_host_reaches_it(reached):
    there = torch.arange(6.0).to(reached)
    array = numpy.from_dlpack(there[2:], copy=False)
    array[0] = 70
    assert there.tolist() == [0, 1, 70, 3, 4, 5]
    there[3] = 80
    there.cpu()
    assert array.tolist() == [70, 80, 4, 5]
    copy = numpy.from_dlpack(there, copy=True)
    copy[:] = 0
    assert there[2].item() == 70


def test_numpy_keeps_the_memory_and_then_releases_it(reached, module):
    def in_use():
        gc.collect()
        module.synchronize()
        return module.memory_stats()["active_bytes.all.current"]

    before = in_use()
    there = torch.full((1000,), 7.0, device=reached)
    array = numpy.from_dlpack(there)
    storage = there.untyped_storage()
    storage.resize_(0)
    del there, storage
    others = [torch.full((1000,), 1.0, device=reached) for _ in range(20)]
    assert (array == 7).all()
    del others
    assert in_use() >= before + 4000
    del array
    assert in_use() == before


def test_other_tensors_are_exported_as_before(device):
    values = torch.arange(3.0)
    array = numpy.from_dlpack(values)
    array[0] = 5
    assert values[0] == 5
    assert numpy.from_dlpack(torch.zeros(2).pin_memory()).tolist() == [0, 0]


# Within PyTorch.


def test_a_capsule_leads_back_to_the_same_memory(device):
    there = torch.arange(6.0).reshape(2, 3).to(device)
    for capsule in [dlpack.to_dlpack(there), there.__dlpack__(), there.__dlpack__(max_version=(1, 0))]:
        again = torch.from_dlpack(capsule)
        assert (again.device, again.data_ptr()) == (there.device, there.data_ptr())
    there += 1
    assert again.tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(RuntimeError, match="consumed only once"):
        torch.from_dlpack(capsule)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_and_type_makes_the_round_trip(device, shape, dtype):
    there = torch.rand(shape).mul(9).to(dtype).to(device)
    again = torch.from_dlpack(there)
    assert (again.device, again.shape, again.dtype) == (there.device, there.shape, dtype)
    assert again.data_ptr() == there.data_ptr()
    assert torch.equal(again.cpu(), there.cpu())


def test_a_view_makes_the_round_trip(device):
    there = torch.arange(24.0).reshape(4, 6).to(device)
    for view in [there.t(), there[1:, ::2], there[:, 3].expand(5, 4)]:
        again = torch.from_dlpack(view)
        assert (again.stride(), again.data_ptr()) == (view.stride(), view.data_ptr())
        assert torch.equal(again.cpu(), view.cpu())


def test_the_memory_lives_as_long_as_an_import(device, module):
    gc.collect()
    before = module.memory_allocated()
    again = torch.from_dlpack(torch.full((1000,), 7.0, device=device))
    others = [torch.full((1000,), 1.0, device=device) for _ in range(20)]
    assert (again == 7).all().item()
    del again, others
    assert module.memory_allocated() == before


def test_device_and_copy_choose_what_is_imported(device):
    there = torch.arange(3.0).to(device)
    assert torch.from_dlpack(there, device=there.device).data_ptr() == there.data_ptr()
    copy = torch.from_dlpack(there, copy=True)
    assert (copy.device, copy.tolist()) == (there.device, [0, 1, 2])
    assert copy.data_ptr() != there.data_ptr()
    assert torch.from_dlpack(there, device="cpu").tolist() == [0, 1, 2]
    here = torch.from_dlpack(torch.arange(3.0), device=device)
    assert (here.device, here.tolist()) == (there.device, [0, 1, 2])


def test_an_array_goes_to_the_device(device):
    array = numpy.arange(6.0).reshape(2, 3)
    there = torch.from_dlpack(array).to(device)
    assert (there.device.type, there.tolist()) == (device, array.tolist())
    assert torch.from_dlpack(array.T).to(device).tolist() == array.T.tolist()
    try:
        there = torch.from_dlpack(array, device=device)
    except BufferError:
        # Older versions ask NumPy for memory of the device.
        assert torch.__version__ < "2.14"
    else:
        assert (there.device.type, there.tolist()) == (device, array.tolist())


def test_a_tensor_goes_to_another_device(two_devices):
    first, second = two_devices
    there = torch.arange(3.0).to(first)
    other = torch.from_dlpack(there, device=second)
    assert (other.device, other.tolist()) == (torch.device(second), [0, 1, 2])
    assert torch.from_dlpack(other).device == torch.device(second)
