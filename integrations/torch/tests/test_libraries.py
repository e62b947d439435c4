"""Libraries that the package tells of the device when a program imports them. A folder stands in for each: the names
are those that the library has, and what it does with them is by hand."""

import os

import pytest

LIGHTNING = """
class Accelerator:
    def __init__(self): pass

class Registry(dict):
    def register(self, name, accelerator, description=""):
        self[name] = accelerator

    def get(self, name):
        return self[name]()

{registry} = Registry()
"""


@pytest.fixture
def lightning(tmp_path):
    for package, registry in (("pytorch", "AcceleratorRegistry"), ("fabric", "ACCELERATOR_REGISTRY")):
        folder = tmp_path / "lightning" / package / "accelerators"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(LIGHTNING.format(registry=registry))
    return tmp_path


def test_lightning_has_the_device_by_its_name(program, lightning):
    text = f"""
        import pickle, sys
        sys.path.insert(0, {os.fspath(lightning)!r})
        import lightning.pytorch.accelerators as full, lightning.fabric.accelerators as fabric
        import torch
        for made in (full.AcceleratorRegistry["openreg"], fabric.ACCELERATOR_REGISTRY["openreg"]):
            print(made.is_available(), made.name(), made.auto_device_count())
            for asked in (1, 2, -1, "1", "0,1", "1,", [1], (0, 1)):
                print(asked, made.parse_devices(asked), made.get_parallel_devices(made.parse_devices(asked)))
            accelerator = made()
            accelerator.setup_device(torch.device("openreg:1"))
            print(torch.openreg.current_device(), accelerator.get_device_stats("openreg:1")["num_ooms"])
            accelerator.teardown()
            print(type(pickle.loads(pickle.dumps(accelerator))) is made)
            try:
                accelerator.setup_device(torch.device("cpu"))
            except RuntimeError as error:
                print(error)
    """
    advice = 'pass the device too, as strategy=SingleDeviceStrategy("openreg:0"), of lightning.'
    lines = program(text, DEVICE_TORCH="openreg").splitlines()
    for of_one, library in ((lines[:12], "pytorch"), (lines[12:], "fabric")):
        first, second = "device(type='openreg', index=0)", "device(type='openreg', index=1)"
        assert of_one == [
            "True openreg 2",
            f"1 [0] [{first}]",
            f"2 [0, 1] [{first}, {second}]",
            f"-1 [0, 1] [{first}, {second}]",
            f"1 [0] [{first}]",
            f"0,1 [0, 1] [{first}, {second}]",
            f"1, [1] [{second}]",
            f"[1] [1] [{second}]",
            f"(0, 1) [0, 1] [{first}, {second}]",
            "1 0",
            "True",
            f"Lightning chose the device `cpu` for the accelerator `openreg`: {advice}{library}.strategies",
        ]
