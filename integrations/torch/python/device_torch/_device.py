"""The module of the device, such as `torch.openreg`: what PyTorch looks for there, and what users expect."""

import contextlib
import types

import torch

from device_torch import _absent
from device_torch._counts import Counts
from device_torch._properties import DeviceProperties


def module(name, library):
    """The module for a device of that name."""
    made = types.ModuleType(f"torch.{name}", f"The device `{name}`. `{name}.devices()` lists what it stands for.")
    device = _Device(name, library)
    for function in dir(device):
        if function in _PRIVATE or not function.startswith("_"):
            setattr(made, function, getattr(device, function))
    made.Stream, made.Event, made.device = torch.Stream, torch.Event, device.guard
    # Without it, checkpoints do not keep the random numbers of the device: PyTorch takes it for unused.
    made._initialized = True

    def __getattr__(asked):
        if asked == "default_generators" and hasattr(torch._C, "_accelerator_getDefaultGenerator"):
            return device._default_generators()
        missing = f"module {made.__name__!r} has no attribute {asked!r}"
        reason = _absent.reason(asked)
        raise AttributeError(f"{missing}: {reason}" if reason else missing, name=asked, obj=made)

    made.__getattr__ = __getattr__
    return made


def _signed(seed):
    """The bits of a seed as PyTorch's operators take them."""
    seed = int(seed) & (2**64 - 1)
    return seed - 2**64 if seed >= 2**63 else seed


# Names that PyTorch itself calls.
_PRIVATE = {"_is_in_bad_fork", "_inductor_backend_init", "_get_generator"}


class _Device:
    def __init__(self, name, library):
        self._name = name
        self._library = library

    # What there is.

    def is_available(self):
        """Whether there is a device."""
        return self.device_count() > 0

    def is_initialized(self):
        """Whether the library is there. A device is opened by its first tensor."""
        return True

    def init(self):
        """Does nothing: a device is opened by its first tensor."""

    def device_count(self):
        """The number of devices."""
        return self._library.device_count()

    def devices(self):
        """The names of the devices in the registry, in the order of their indices."""
        return [self._library.device_name(index) for index in range(self.device_count())]

    def get_device_name(self, device=None):
        """The name of a device in the registry, such as `openreg:1`."""
        return self._library.device_name(self._index(device))

    def describe(self):
        """All backends and devices of the registry, in words."""
        return self._library.describe()

    def get_device_properties(self, device=None):
        """What is known of a device: see `DeviceProperties`. Opens nothing."""
        return DeviceProperties.of(self._library.device_properties(self._index(device)))

    def get_device_capability(self, device=None):
        """The compute capability, major and minor, of a device whose vendor numbers it."""
        found = self.get_device_properties(device)
        if found.major is None:
            name = self.get_device_name(device)
            raise RuntimeError(f"`{name}` has no compute capability; get_device_properties says what is known of it")
        return found.major, found.minor

    def is_bf16_supported(self, including_emulation=True):
        """Whether tensors can be of `bfloat16`: always, as the CPU computes what the device cannot. Without the
        emulation, whether the current device has it among its native types."""
        return including_emulation or "bf16" in (self.get_device_properties().native_dtypes or ())

    def is_tf32_supported(self):
        """Whether products of matrices may round to `TF32`: never."""
        return False

    def can_device_access_peer(self, device, peer_device):
        """Whether a device reads the memory of another one: never. Copies between devices work."""
        self.get_device_name(device), self.get_device_name(peer_device)
        return False

    # The current device and its streams.

    def current_device(self):
        """The index of the current device."""
        return torch.accelerator.current_device_index()

    def set_device(self, device):
        """Makes a device the current one of this thread."""
        torch.accelerator.set_device_index(self._index(device))

    def guard(self, device):
        """A context in which the device is the current one. None and negative indices change nothing."""
        index = -1 if device is None else self._index(device)
        return torch.accelerator.device_index(None if index < 0 else index)

    def device_of(self, obj):
        """A context in which the device of a tensor is the current one. Of a tensor elsewhere, it changes nothing."""
        return self.guard(obj.device if obj.device.type == self._name else None)

    def synchronize(self, device=None):
        """Waits for the work of all streams of the device."""
        torch.accelerator.synchronize(self._index(device))

    def current_stream(self, device=None):
        """This thread's current stream of the device."""
        return torch.accelerator.current_stream(self._index(device))

    def default_stream(self, device=None):
        """The stream that each thread begins with on the device."""
        index = self._index(device)
        self._library.device_name(index)
        kind = torch._C._autograd.DeviceType.PrivateUse1.value
        return torch.Stream(stream_id=0, device_index=index, device_type=kind)

    def set_stream(self, stream):
        """Makes a stream the current one of this thread."""
        torch.accelerator.set_stream(stream)

    def stream(self, stream):
        """A context in which the stream is the current one. None changes nothing."""
        return contextlib.nullcontext() if stream is None else stream

    def is_current_stream_capturing(self):
        """Whether work is recorded in a graph: never."""
        return False

    # Memory.

    def empty_cache(self):
        """Gives memory back that devices keep for later."""
        torch.accelerator.memory.empty_cache()

    def memory_allocated(self, device=None):
        """The bytes of tensors on the device."""
        return torch.accelerator.memory.memory_allocated(self._index(device))

    def max_memory_allocated(self, device=None):
        """The largest value of `memory_allocated` since the last reset."""
        return torch.accelerator.memory.max_memory_allocated(self._index(device))

    def memory_reserved(self, device=None):
        """The bytes that the device holds for this process."""
        return torch.accelerator.memory.memory_reserved(self._index(device))

    def max_memory_reserved(self, device=None):
        """The largest value of `memory_reserved` since the last reset."""
        return torch.accelerator.memory.max_memory_reserved(self._index(device))

    def mem_get_info(self, device=None):
        """The free and the total memory of the device, in bytes."""
        return torch.accelerator.memory.get_memory_info(self._index(device))

    def device_memory_used(self, device=None):
        """The bytes of the device that all programs together use."""
        free, total = self.mem_get_info(device)
        return total - free

    def reset_peak_memory_stats(self, device=None):
        """Resets the largest values to those of now."""
        torch.accelerator.memory.reset_peak_memory_stats(self._index(device))

    def reset_accumulated_memory_stats(self, device=None):
        """Resets what was ever allocated and freed."""
        torch.accelerator.memory.reset_accumulated_memory_stats(self._index(device))

    def memory_stats(self, device=None):
        """All statistics, by name."""
        return torch.accelerator.memory.memory_stats(self._index(device))

    def memory_stats_as_nested_dict(self, device=None):
        """All statistics, by the parts of their names."""
        return torch._C._accelerator_getDeviceStats(self._index(device))

    def memory_summary(self, device=None, abbreviated=False):
        """The statistics as a table."""
        stats = self.memory_stats(device)
        lines = [f"{'bytes of ' + self.get_device_name(device):<24}{'now':>16}{'peak':>16}{'ever':>16}"]
        for name in ("allocated", "active", "reserved"):
            values = (stats[f"{name}_bytes.all.{value}"] for value in ("current", "peak", "allocated"))
            lines.append(f"{name:<24}" + "".join(f"{value:>16,}" for value in values))
        return "\n".join(lines)

    # Random numbers.

    def initial_seed(self, device=None):
        """The seed of the device's generator."""
        return torch.ops.device_torch.initial_seed(self._index(device)) & (2**64 - 1)

    def manual_seed(self, seed, device=None):
        """Sets the seed of the device's generator."""
        torch.ops.device_torch.manual_seed(self._index(device), _signed(seed))

    def manual_seed_all(self, seed):
        """Sets the seed of all devices, without a look at which there are."""
        torch.ops.device_torch.manual_seed_all(_signed(seed))

    def seed(self, device=None):
        """Sets a random seed, and returns it."""
        return torch.ops.device_torch.new_seed(self._index(device)) & (2**64 - 1)

    def seed_all(self):
        """Sets one random seed for all devices."""
        self.manual_seed_all(self.seed())

    def get_rng_state(self, device=None):
        """The state of the device's generator."""
        return torch.ops.device_torch.get_rng_state(self._index(device))

    def set_rng_state(self, state, device=None):
        """Sets the state of the device's generator."""
        torch.ops.device_torch.set_rng_state(self._index(device), state)

    def get_rng_state_all(self):
        """The states of all devices."""
        return [self.get_rng_state(device) for device in range(self.device_count())]

    def set_rng_state_all(self, states):
        """Sets the states of all devices."""
        for device, state in enumerate(states):
            self.set_rng_state(state, device)

    def _default_generators(self):
        """The generators of all devices. The module has them as an attribute, like those of PyTorch's own."""
        return tuple(map(torch._C._accelerator_getDefaultGenerator, range(self.device_count())))

    def _get_generator(self, device):
        return self._default_generators()[self._index(device)]

    # Autocast.

    def get_amp_supported_dtype(self):
        """The types that autocast can choose."""
        return [torch.bfloat16, torch.float16]

    # What kernels and the CPU have computed.

    def counts(self):
        """What was computed since the last reset, by operator: see `Counts`."""
        return Counts.of(self._library.counts())

    def reset_counts(self):
        """Forgets all counts."""
        self._library.reset_counts()

    def _is_in_bad_fork(self):
        return self._library.is_forked()

    def _inductor_backend_init(self):
        from device_torch import _compile

        _compile.refuse_inductor(self._name)

    def _index(self, device):
        if device is None:
            return torch.accelerator.current_device_index()
        if isinstance(device, int):
            return device
        device = torch.device(device)
        if device.type != self._name:
            raise ValueError(f"expected a device `{self._name}`, got `{device}`")
        return torch.accelerator.current_device_index() if device.index is None else device.index
