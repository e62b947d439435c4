"""What `torch.compile` wants to know of the device. It is imported when a program begins to compile."""

import torch
from torch._dynamo import assume_constant_result
from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device


def register(name, module):
    """Tells dynamo of the device, so that it traces its streams, its guards and questions about it."""

    class Interface(DeviceInterface):
        """The functions of the module, under the names that dynamo and inductor call."""

        Event, Stream = torch.Event, torch.Stream
        device, stream = staticmethod(module.device), staticmethod(module.stream)
        current_device, set_device = staticmethod(module.current_device), staticmethod(module.set_device)
        current_stream, set_stream = staticmethod(module.current_stream), staticmethod(module.set_stream)
        is_available, device_count = staticmethod(module.is_available), staticmethod(module.device_count)
        synchronize, memory_allocated = staticmethod(module.synchronize), staticmethod(module.memory_allocated)
        exchange_device = staticmethod(torch._C._accelerator_exchangeDevice)
        maybe_exchange_device = staticmethod(torch._C._accelerator_maybeExchangeDevice)

        @staticmethod
        def is_bf16_supported(including_emulation=False):
            return module.is_bf16_supported(including_emulation)

        @staticmethod
        def get_compute_capability(device=None):
            found = module.get_device_properties(device)
            return "" if found.major is None else f"{found.major}.{found.minor}"

        class Worker:
            """Inductor's processes call it, for each registered device, also where they compile for the CPU."""

            set_device, current_device = staticmethod(module.set_device), staticmethod(module.current_device)
            get_device_properties = staticmethod(module.get_device_properties)

    register_interface_for_device(name, Interface)
    _register_random_numbers(name)
    # They return the same in each call, so a traced function has their results.
    for function in (module.is_available, module.device_count, module.get_device_name, module.is_bf16_supported):
        assume_constant_result(function.__func__)


def _register_random_numbers(name):
    """Has a checkpoint within a compiled function draw its random numbers again, from a generator's state."""
    from torch._functorch._aot_autograd import utils

    # Versions before 2.15 have CUDA alone.
    if hasattr(utils, "register_graphsafe_rng_device_type"):
        utils.register_graphsafe_rng_device_type(name)


def refuse_inductor(name):
    """Has inductor, the default of `torch.compile`, refuse graphs of the device by one clear error. Graphs of other
    devices compile as ever: an exception here would end those too."""
    from torch._inductor.codegen.common import register_backend_for_device
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen
    from torch._inductor.custom_graph_pass import CustomGraphModulePass

    def refuse(*_):
        raise NotImplementedError(
            f'inductor generates no code for `{name}`: use torch.compile(…, backend="device_torch"), which fuses '
            "operators for the device's kernels"
        )

    class Scheduling:
        """What would generate code."""

        __init__ = refuse

    class Refuse(CustomGraphModulePass):
        """Runs for each graph with a tensor of the device, before code is generated."""

        __call__ = refuse

        def uuid(self):
            return f"device_torch refuses {name}"

    register_backend_for_device(name, Scheduling, PythonWrapperCodegen, device_custom_pass=Refuse())
