"""The module of the device, such as `torch.openreg`, beside `torch.cuda` and `torch.xpu`."""

from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from device_torch import _absent
from device_torch._properties import DeviceProperties


def test_each_name_of_cuda_and_xpu_is_there_or_says_why_not(device, module):
    for name in {*torch.cuda.__all__, *torch.xpu.__all__}:
        try:
            getattr(module, name)
        except AttributeError as error:
            plain = f"module 'torch.{device}' has no attribute {name!r}"
            assert str(error).startswith(f"{plain}: "), f"{name} is new in PyTorch: add it, or a line of _absent.py"
    there = [name for name in _absent._ABSENT if hasattr(module, name) and name != "default_generators"]
    assert there == [], "these are there, and _absent.py says that they are not"


def test_a_name_of_no_device_is_an_ordinary_error(device, module):
    with pytest.raises(AttributeError, match=f"^module 'torch.{device}' has no attribute 'nonsense'$"):
        module.nonsense
    assert not hasattr(module, "ipc_collect") and not hasattr(module, "__wrapped__")


def test_properties_are_those_of_the_registry(device, module):
    properties = module.get_device_properties(0)
    assert properties == module.get_device_properties(torch.device(device, 0)) == module.get_device_properties()
    assert properties.name and properties.name in module.describe()
    assert properties.kind in ("cpu", "gpu", "integrated gpu", "accelerator", "simulated", "other")
    assert properties.total_memory is None or properties.total_memory > 1 << 20
    assert isinstance(properties.timed_events, bool)
    assert properties.multi_processor_count is None or properties.multi_processor_count > 0
    assert repr(properties).startswith("DeviceProperties(name=")
    with pytest.raises(RuntimeError, match="asked for"):
        module.get_device_properties(99)
    if device == "openreg":
        assert properties.total_memory == module.mem_get_info(0)[1]
        assert properties.kind == "simulated" and isinstance(properties.attributes["guarded_memory"], bool)
        assert properties.pci == "ffffffff:00:00.0" and properties.driver_version
        assert properties.multi_processor_count is None and properties.vendor is None


def test_properties_are_read_from_lines():
    lines = (
        "name\ts\ta card\npci\ts\t0001:3b:1f.7\nmajor\ti\t9\nattributes.multiprocessors\ti\t132\nattributes.pci\tb\t1\n"
    )
    properties = DeviceProperties.of(lines + "native_dtypes\ts\tf32 bf16\n")
    assert (properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id) == (1, 0x3B, 0x1F)
    assert properties.major == 9 and properties.minor is None and properties.multi_processor_count == 132
    assert properties.native_dtypes == ("f32", "bf16") and properties.pci == "0001:3b:1f.7"
    assert properties.attributes == {"multiprocessors": 132, "pci": True}
    assert DeviceProperties.of("name\ts\tx\n").pci_bus_id is None


def test_properties_open_no_device_and_a_child_may_use_it(program):
    text = """
        import ctypes, device_torch, os, pathlib, torch
        library = ctypes.CDLL(str(pathlib.Path(device_torch.__file__).parent / "libdevice_torch.so"))
        asked = torch.openreg.get_device_properties(1)
        torch.openreg.is_bf16_supported(False), torch.openreg.default_stream(1), torch.openreg.can_device_access_peer(0, 1)
        print(library.dt_is_open(1))
        if (child := os.fork()) == 0:
            print(torch.ones(1, device="openreg:1").item(), torch.openreg.get_device_properties(1) == asked)
            os._exit(0)
        os.waitpid(child, 0)
        try:
            torch.openreg.get_device_properties(2)
        except RuntimeError as error:
            print(error)
        tensor = torch.ones(1, device="openreg:1")
        print(torch.openreg.get_device_properties(1) == asked)
        if (child := os.fork()) == 0:
            try:
                torch.openreg.get_device_properties(1)
            except RuntimeError as error:
                print(error)
            os._exit(0)
        os.waitpid(child, 0)
    """
    lines = program(text, DEVICE_TORCH="openreg").splitlines()
    assert lines[:2] == ["0", "1.0 True"] and "asked for `openreg:2`" in lines[2] and lines[3] == "True"
    assert "`spawn`" in lines[4]


def test_a_capability_is_a_pair_or_an_error(module):
    found = module.get_device_properties()
    if found.major is None:
        with pytest.raises(RuntimeError, match="has no compute capability; get_device_properties"):
            module.get_device_capability()
    else:
        assert module.get_device_capability() == (found.major, found.minor)


def test_types_are_emulated_unless_native(device, module):
    assert module.is_bf16_supported() is True
    assert torch.ones(3, dtype=torch.bfloat16, device=device).sum().item() == 3
    native = module.get_device_properties().native_dtypes or ()
    assert module.is_bf16_supported(including_emulation=False) == ("bf16" in native)
    assert module.is_tf32_supported() is False


def test_no_device_reads_the_memory_of_another(module):
    last = module.device_count() - 1
    assert module.can_device_access_peer(0, last) is False
    with pytest.raises(RuntimeError, match="asked for"):
        module.can_device_access_peer(0, 99)


def test_the_default_stream_is_where_a_thread_begins(device, module):
    default = module.default_stream()
    assert default == module.current_stream() and default.device.type == device
    with torch.Stream(device) as other:
        assert module.default_stream() == default != other == module.current_stream()
        assert module.is_current_stream_capturing() is False
    with module.stream(None):
        assert module.current_stream() == default
    with pytest.raises(RuntimeError, match="asked for"):
        module.default_stream(99)


def test_the_device_of_a_tensor_becomes_the_current_one(two_devices, module):
    there = torch.ones(1, device=two_devices[1])
    with module.device_of(there):
        assert module.current_device() == 1
        with module.device_of(torch.ones(1)), module.device(None), module.device(-1):
            assert module.current_device() == 1
    assert module.current_device() == 0


def test_memory_is_counted_as_on_other_devices(device, module):
    tensor = torch.empty(1 << 20, dtype=torch.uint8, device=device)
    try:
        free, total = module.mem_get_info()
        assert 0 <= free < total and 0 < module.device_memory_used() <= total
    except NotImplementedError as error:
        # OpenCL has no such question.
        assert "does not say how much memory" in str(error) and device != "openreg"
    module.reset_peak_memory_stats()
    assert module.max_memory_reserved() == module.memory_stats()["reserved_bytes.all.peak"] >= 1 << 20
    assert module.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] == module.memory_allocated()
    module.reset_accumulated_memory_stats()
    assert module.memory_stats()["allocated_bytes.all.allocated"] == module.memory_allocated() >= 1 << 20
    del tensor
    summary = module.memory_summary(abbreviated=True).splitlines()
    assert [line.split()[0] for line in summary] == ["bytes", "allocated", "active", "reserved"]
    assert summary[1].split()[1] == f"{module.memory_allocated():,}"


@pytest.mark.skipif("not hasattr(torch._C, '_accelerator_getDefaultGenerator')", reason="an older PyTorch")
def test_generators_are_a_tuple_of_all_devices(device, module):
    generators = module.default_generators
    assert len(generators) == module.device_count() and generators[0].device == torch.device(device, 0)
    module.manual_seed(5, 0)
    assert generators[0].initial_seed() == 5


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpoint_draws_the_same_random_numbers_again(device, use_reentrant):
    drawn = []

    def noisy(x):
        drawn.append(torch.rand(64, device=device))
        return x * drawn[-1]

    x = torch.ones(64, device=device, requires_grad=True)
    checkpoint(noisy, x, use_reentrant=use_reentrant).sum().backward()
    assert len(drawn) == 2 and torch.equal(drawn[0], drawn[1]) and torch.equal(x.grad, drawn[0])
    assert not torch.equal(torch.rand(64, device=device), drawn[0])


def test_a_message_to_another_process_has_no_tensor_of_the_device(device):
    tensor = torch.ones(2, device=device)
    for refused in (tensor, [tensor], torch.nn.Parameter(tensor)):
        with pytest.raises(RuntimeError, match=f"memory of `{device}:0` is not shared between processes: send"):
            ForkingPickler.dumps(refused)
    for sent in (tensor.cpu(), torch.nn.Parameter(tensor.cpu())):
        received = ForkingPickler.loads(ForkingPickler.dumps(sent))
        received.data.fill_(7)
        assert type(received) is type(sent) and sent.tolist() == [7, 7], "memory of the host is shared as ever"
    assert tensor.share_memory_() is tensor
