"""How PyTorch gets the device: names, bad choices, and what an import may not do. Each program sets its variables."""

import os
import subprocess
import sys

import pytest

TENSOR = "import torch; print(torch.tensor([1, 2, 3], device={!r}))"


def test_no_import_but_that_of_torch_is_needed(program):
    variables = {**os.environ, "DEVICE_TORCH": "openreg"}
    command = [sys.executable, "-c", TENSOR.format("openreg")]
    printed = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout
    assert printed == "tensor([1, 2, 3], device='openreg:0')\n"
    assert program(TENSOR.format("openreg:1"), DEVICE_TORCH="openreg") == "tensor([1, 2, 3], device='openreg:1')\n"


def test_a_trace_says_what_the_device_did(tmp_path):
    file = tmp_path / "trace.json"
    variables = {**os.environ, "DEVICE_TORCH": "openreg", "DEVICE_TRACE": str(file)}
    text = "import torch; x = torch.ones(8, device='openreg'); print((x + x).sum().item())"
    command = [sys.executable, "-c", text]
    printed = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout
    assert printed == "16.0\n"
    trace = file.read_text()
    assert '"name":"openreg:0"' in trace and '"name":"add"' in trace, trace


def test_several_backends_are_one_device_with_an_index_for_each(program):
    text = """
        import torch
        names = torch.registry.devices()
        assert len(names) == torch.registry.device_count() and "openreg:1" in names, names
        assert not any(name.startswith("cpu") for name in names), names
        print(torch.tensor([1], device=f"registry:{names.index('openreg:1')}"), names.index("openreg:1"))
    """
    printed = program(text)
    tensor, index = printed.rsplit(maxsplit=1)
    assert tensor == f"tensor([1], device='registry:{index}')"


def test_a_list_has_the_backends_in_its_order(program):
    text = "import torch; print(torch.registry.devices()[0])"
    assert program(text, DEVICE_TORCH="openreg, opencl") == "openreg:0\n"


@pytest.mark.parametrize(
    ("variables", "parts"),
    [
        ({"DEVICE_TORCH": "openregg"}, ["DEVICE_TORCH is `openregg`", "did you mean `openreg`?", "linked"]),
        ({"DEVICE_TORCH": "cpu"}, ["DEVICE_TORCH is `cpu`", "PyTorch has a device `cpu` of its own"]),
        ({"DEVICE_TORCH": "openreg,openreg"}, ["`openreg` is there twice"]),
        ({"DEVICE_TORCH": "openreg", "DEVICE_TORCH_NAME": "cuda"}, ["refuses the name 'cuda'", "DEVICE_TORCH_NAME"]),
        ({"DEVICE_TORCH": "openreg", "DEVICE_TORCH_NAME": "a-b"}, ["DEVICE_TORCH_NAME is `a-b`"]),
        ({"DEVICE_TORCH": "openreg", "DEVICE_TORCH_NAME": "1a"}, ["DEVICE_TORCH_NAME is `1a`", "expected a letter"]),
    ],
)
def test_a_bad_choice_is_a_warning_and_torch_stays_usable(program, variables, parts):
    printed = program("import torch; print(torch.ones(2) + 1)", **variables)
    assert "tensor([2., 2.])" in printed and "device_torch registers no device" in printed
    for part in parts:
        assert part in printed, part


def test_a_folder_without_backends_is_a_warning(program):
    printed = program(TENSOR.format("openreg"), DEVICE_TORCH="openreg", DEVICE_TORCH_PLUGINS="/nonexistent")
    assert "DEVICE_TORCH_PLUGINS is `/nonexistent`" in printed and "does not exist" in printed
    assert "tensor([1, 2, 3], device='openreg:0')" in printed


def test_another_name_can_be_chosen(program):
    variables = {"DEVICE_TORCH": "openreg", "DEVICE_TORCH_NAME": "mine"}
    assert program(TENSOR.format("mine:1"), **variables) == "tensor([1, 2, 3], device='mine:1')\n"


def test_an_unknown_version_of_torch_is_a_warning_with_the_command(program):
    text = """
        import warnings, device_torch, torch
        torch.__version__ = "9.9.1"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            device_torch._autoload()
        print(caught[0].message, torch.ones(1))
    """
    printed = program(text)
    assert "this is 9.9.1" in printed and "-m device_torch.build" in printed and "tensor([1.])" in printed


def test_a_device_is_opened_by_its_first_tensor(program):
    text = """
        import ctypes, device_torch, pathlib, torch
        library = ctypes.CDLL(str(pathlib.Path(device_torch.__file__).parent / "libdevice_torch.so"))
        print([library.dt_is_open(device) for device in (0, 1)])
        torch.ones(1, device="openreg:1")
        print([library.dt_is_open(device) for device in (0, 1)])
    """
    assert program(text, DEVICE_TORCH="openreg") == "[0, 0]\n[0, 1]\n"


def test_an_index_without_a_device_says_how_many_there_are(program):
    printed = program(TENSOR.format("openreg:2"), fails=True, DEVICE_TORCH="openreg")
    assert "`openreg` has 2 devices, asked for `openreg:2`" in printed


def test_a_child_of_a_fork_gets_an_error(program):
    text = """
        import os, torch
        tensor = torch.ones(2, device="openreg")
        child = os.fork()
        if child == 0:
            try:
                tensor + 1
            except RuntimeError as error:
                print(error, flush=True)
            try:
                torch.ones(1, device="openreg")
            except RuntimeError as error:
                print(torch.openreg._is_in_bad_fork(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(tensor + 1)
    """
    printed = program(text, DEVICE_TORCH="openreg")
    assert "forked" in printed and "`spawn`" in printed and "True" in printed
    assert "tensor([2., 2.], device='openreg:0')" in printed


def test_an_access_by_the_host_is_a_fault(program):
    text = """
        import ctypes, torch
        tensor = torch.ones(4, device="openreg")
        ctypes.string_at(tensor.data_ptr(), 4)
    """
    assert program(text, fails=True, DEVICE_TORCH="openreg") == ""
