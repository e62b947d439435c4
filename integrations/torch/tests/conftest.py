"""The tests run on the device that the variables choose, such as DEVICE_TORCH=openreg."""

import textwrap

import pytest
import torch
from programs import Programs

NAME = torch._C._get_privateuse1_backend_name()
MODULE = getattr(torch, NAME)


@pytest.fixture
def device():
    """The name of the device in PyTorch."""
    return NAME


@pytest.fixture
def module():
    """The module of the device, such as `torch.openreg`."""
    return MODULE


@pytest.fixture
def two_devices():
    """Two devices; else the test is skipped."""
    if MODULE.device_count() < 2:
        pytest.skip("one device alone")
    return f"{NAME}:0", f"{NAME}:1"


@pytest.fixture(scope="session")
def _programs():
    programs = Programs()
    yield programs
    programs.close()


@pytest.fixture
def program(_programs):
    """Runs a program in a process of its own, with variables, and returns what it printed."""

    def run(text, fails=False, **variables):
        status, printed = _programs.run(textwrap.dedent(text), variables)
        assert (status != 0) == fails, printed
        return printed

    return run


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(7)
