"""The device as an accelerator of Lightning: `Trainer(accelerator="openreg", …)`, and the same for `Fabric`."""

import sys

import torch


def register(library, name, module):
    """Adds the accelerator to the registry of one of the libraries."""
    accelerators = sys.modules[library]
    named = "AcceleratorRegistry" if hasattr(accelerators, "AcceleratorRegistry") else "ACCELERATOR_REGISTRY"

    class Accelerator(accelerators.Accelerator):
        """What Lightning calls of a device."""

        def setup_device(self, device):
            if device.type != name:
                # Lightning has a list of the accelerators whose device it chooses by itself.
                raise RuntimeError(
                    f"Lightning chose the device `{device}` for the accelerator `{name}`: pass the device too, as "
                    f'strategy=SingleDeviceStrategy("{name}:0"), of {library.removesuffix(".accelerators")}.strategies'
                )
            module.set_device(device)

        def teardown(self):
            module.empty_cache()

        def get_device_stats(self, device):
            return module.memory_stats(device)

        @staticmethod
        def parse_devices(devices):
            if isinstance(devices, str):
                devices = [int(index) for index in devices.split(",") if index] if "," in devices else int(devices)
            if isinstance(devices, int):
                return list(range(module.device_count() if devices == -1 else devices))
            return list(devices)

        @staticmethod
        def get_parallel_devices(devices):
            return [torch.device(name, index) for index in devices]

        @staticmethod
        def auto_device_count():
            return module.device_count()

        @staticmethod
        def is_available():
            return module.is_available()

        @staticmethod
        def name():
            return name

    getattr(accelerators, named).register(name, Accelerator, description=f"The devices of torch.{name}")
