"""The device as an accelerator of Lightning: `Trainer(accelerator="openreg", …)`, and the same for `Fabric`."""

import importlib

import torch


def register(library, name, module):
    """Adds the accelerator to the registry of one of the libraries."""

    class Accelerator(importlib.import_module(library).Accelerator):
        """What Lightning calls of a device."""

        def __reduce__(self):
            # Lightning sends it to the processes that it starts.
            return _accelerator, (library, name)

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

    _registry(library).register(name, Accelerator, description=f"The devices of torch.{name}")


def _registry(library):
    accelerators = importlib.import_module(library)
    is_full = hasattr(accelerators, "AcceleratorRegistry")
    return accelerators.AcceleratorRegistry if is_full else accelerators.ACCELERATOR_REGISTRY


def _accelerator(library, name):
    return _registry(library).get(name)
