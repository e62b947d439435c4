"""`torch.compile` with tensors of the device."""

import warnings

import pytest
import torch


@pytest.fixture(autouse=True)
def _forgets_what_was_compiled():
    yield
    torch._dynamo.reset()


def compiled(function, **options):
    """Compiled as a whole, without a warning."""
    traced = torch.compile(function, backend="aot_eager", fullgraph=True, **options)

    def call(*arguments):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return traced(*arguments)

    return call


def test_dynamo_learns_of_the_device_when_a_program_imports_it(program):
    text = """
        import importlib.util, sys, warnings
        import torch
        print("torch._dynamo" in sys.modules, importlib.util.find_spec("torch._dynamo").name)
        warnings.simplefilter("error")
        import torch._dynamo
        from torch._dynamo.device_interface import get_interface_for_device
        print(get_interface_for_device("openreg").device_count(), torch._dynamo.__spec__.loader.exec_module)
    """
    first, second = program(text, DEVICE_TORCH="openreg").splitlines()
    assert first == "False torch._dynamo" and second.startswith("2 <function")


def test_a_library_that_cannot_be_told_of_the_device_is_imported_all_the_same(program):
    text = """
        import sys, warnings
        from device_torch import _later
        _later.after_import("wave", "device_torch.nothing")
        _later.after_import("json", "device_torch.nothing")
        import wave
        print(wave.open)
    """
    printed = program(text, DEVICE_TORCH="openreg")
    assert "registers no device in wave: ModuleNotFoundError" in printed and "<function open" in printed
    assert "registers no device in json" in printed


def test_questions_about_the_device_are_traced(device, module):
    name = module.get_device_name(0)

    def function(x):
        if not module.is_available() or not module.is_bf16_supported() or module.get_device_name(0) != name:
            return x
        return x + module.device_count() + module.current_device()

    x = torch.arange(3.0, device=device)
    assert compiled(function)(x).tolist() == (x + module.device_count()).tolist()


def test_streams_and_events_are_traced(device, module):
    def function(x):
        stream, event = module.Stream(), module.Event()
        with module.stream(stream):
            doubled = x * 2
            event.record(stream)
        module.current_stream().wait_event(event)
        module.current_stream().wait_stream(stream)
        return doubled + 1

    assert compiled(function)(torch.arange(3.0, device=device)).tolist() == [1, 3, 5]


def test_the_current_device_is_traced_and_guarded(two_devices, module):
    calls = []

    def backend(graph, inputs):
        calls.append(graph)
        return graph

    def function(x):
        with module.device(1):
            return torch.ones(3, device=torch.device(two_devices[0]).type) + x.to(two_devices[1])

    traced = torch.compile(function, backend=backend, fullgraph=True)
    for device in (*two_devices, *two_devices):
        result = traced(torch.arange(3.0, device=device))
        assert result.tolist() == [1, 2, 3] and str(result.device) == two_devices[1]
    assert len(calls) == 2, "one graph for each device of the argument"


def test_a_compiled_module_trains_as_it_does_uncompiled(device):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
    x = torch.randn(5, 4).to(device)
    gradients = []
    for forward in (model, compiled(model)):
        model.zero_grad()
        forward(x).square().mean().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for eager, traced in zip(*gradients):
        assert torch.equal(eager, traced)


def test_a_compiled_checkpoint_draws_the_same_random_numbers_again(device):
    from torch._functorch._aot_autograd import utils

    if not hasattr(utils, "register_graphsafe_rng_device_type"):
        pytest.skip("this PyTorch has it for CUDA alone")

    def noisy(x):
        return torch.nn.functional.dropout(x.sin(), 0.5) * torch.rand_like(x)

    traced = compiled(lambda x: torch.utils.checkpoint.checkpoint(noisy, x, use_reentrant=False))
    x = torch.ones(64, device=device, requires_grad=True)
    drawn = []
    for _ in range(3):
        x.grad = None
        y = traced(x)
        y.sum().backward()
        # The gradient is the cosine times what was drawn, and the result is the sine times it.
        assert torch.allclose(y.detach() / x.detach().sin(), x.grad / x.detach().cos())
        drawn.append(y.detach())
    assert not torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[1], drawn[2])


def test_inductor_refuses_the_device_by_one_line_and_compiles_for_the_cpu(device):
    from torch._inductor.codegen import common

    if not hasattr(common, "_privateuse1_backend_init_in_progress"):
        pytest.skip("this PyTorch does not ask a device's module")
    traced = torch.compile(lambda x: (x @ x).relu())
    for _ in range(2):
        with pytest.raises(Exception) as refused:
            traced(torch.ones(2, 2, device=device))
        text = str(refused.value).split("\n")[0]
        assert text.startswith(f"NotImplementedError: inductor generates no code for `{device}`: use ")
        assert 'backend="device_torch"' in text
    # Without a kernel of its own, which would be C++ to compile.
    assert torch.compile(lambda x: x @ x)(torch.ones(2, 2)).tolist() == [[2, 2], [2, 2]]


def test_inductor_can_ask_for_the_properties_of_each_device(device, module):
    from torch._dynamo.device_interface import get_interface_for_device
    from torch._inductor.async_compile import caching_device_properties

    caching_device_properties()
    interface = get_interface_for_device(torch.device(device, 0))
    assert interface.get_device_properties(0) == module.get_device_properties(0)
    found = module.get_device_properties(0)
    assert interface.get_compute_capability(0) == ("" if found.major is None else f"{found.major}.{found.minor}")
    assert interface.is_bf16_supported() == module.is_bf16_supported(including_emulation=False)
    assert interface.exchange_device(0) == 0 == interface.current_device()
