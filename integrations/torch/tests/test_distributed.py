"""`torch.distributed` on the device. `ranks.py` has what the processes of a group do."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
from torch import nn

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="a PyTorch without torch.distributed")


@pytest.fixture
def group(program):
    """Runs a function of `ranks.py` in the processes of a group, and returns their statuses and what they printed."""

    def run(size, check, backend=None, **options):
        chosen = {name: value for name, value in os.environ.items() if name.startswith("DEVICE_")}
        text = f"import ranks\nprint('statuses', ranks.run({size}, {check!r}, {backend!r}, **{options!r}))"
        printed = program(text, **chosen)
        *before, statuses = printed.splitlines()
        assert statuses.startswith("statuses"), printed
        return eval(statuses.removeprefix("statuses")), "\n".join(before)

    return run


def test_two_processes_exchange_tensors_and_train(group, device):
    statuses, printed = group(2, "two", f"cpu:gloo,{device}:registry")
    assert statuses == [0, 0], printed


def test_data_parallel_of_several_devices_says_what_to_use(device, two_devices):
    with pytest.raises(NotImplementedError, match="use `DistributedDataParallel` with a process for each device"):
        nn.DataParallel(nn.Linear(2, 1))
    layer, inputs = nn.Linear(2, 1), torch.ones(3, 2)
    expected = layer(inputs)
    found = nn.DataParallel(layer, device_ids=[0])(inputs.to(device))
    torch.testing.assert_close(found.cpu(), expected)


def test_four_processes_train_with_the_default_backend(group):
    # PyTorch 2.10 takes gloo for the default of a group that has none.
    is_recent = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)
    statuses, printed = group(4, "four", None if is_recent else "registry")
    assert statuses == [0, 0, 0, 0], printed
    # DistributedDataParallel's log has a clock.
    assert "Time stats" not in printed


def test_the_others_get_an_error_when_a_process_leaves(group):
    statuses, printed = group(2, "leaves")
    assert statuses[1] == 1 and "this one leaves" in printed
    assert statuses[0] == 0, printed
    assert "error of the other: " in printed and "error of a future: " in printed and "gloo" in printed


def test_a_process_that_waits_for_too_long_gets_an_error(group):
    statuses, printed = group(2, "is_late", timeout=4)
    assert statuses == [0, 0], printed
    assert "Timed out" in printed


def test_a_backend_of_that_name_is_not_replaced(program):
    printed = program(
        """
        import torch
        from torch.distributed import Backend
        from device_torch import _distributed

        def other(*arguments): ...
        del Backend._plugins["REGISTRY"]
        Backend.register_backend("registry", other, devices="cpu")
        _distributed.install("openreg", None)
        assert Backend._plugins["REGISTRY"].creator_fn is other
        """,
        DEVICE_TORCH="openreg",
    )
    assert "`torch.distributed` has a backend `registry` already, of __main__" in printed
    assert "cannot exchange tensors of `openreg`" in printed


def test_the_example_has_the_losses_of_one_process(device):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [EXAMPLES / "processes.py", device, "--epochs", "1", "--compare"]
    example = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert example.returncode == 0, example.stdout + example.stderr
    assert "the losses of one process" in example.stdout
