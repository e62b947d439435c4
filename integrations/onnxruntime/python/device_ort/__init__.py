"""ONNX Runtime on any registered device.

Each device of the registry is an execution provider with the device's text as its name:

    session = onnxruntime.InferenceSession("model.onnx", providers=["opencl:0"])

No line is needed for it: the package registers the devices when a program first asks ONNX Runtime for its providers.
"""

import collections
import ctypes
import os
import pathlib
import threading

LIBRARY = pathlib.Path(os.environ.get("DEVICE_ORT_LIBRARY") or pathlib.Path(__file__).with_name("libdevice_ort.so"))

# As many devices does ONNX Runtime take of one registration.
_AT_ONCE = 4

_registering = threading.Lock()


def _text(what):
    """A text of the library."""
    library = ctypes.CDLL(str(LIBRARY))
    library.device_ort_text.restype = ctypes.c_void_p
    text = library.device_ort_text(ctypes.c_uint32(what))
    if not text:
        raise MemoryError("device_ort: no memory for a text")
    try:
        return ctypes.string_at(text).decode()
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(text))


def _backends():
    """The offered backends, each with its devices, or with why it has none."""
    found = {}
    for line in _text(0).splitlines():
        if line.startswith("!"):
            raise RuntimeError(f"device_ort: {line[1:]}")
        name, devices = line.split("\t", 1)
        found[name] = devices
    return found


def devices():
    """The devices that are offered, such as `["opencl:0", "opencl:1"]`. Their backends are loaded, and none is opened."""
    return [device for listed in _backends().values() if not listed.startswith("!") for device in listed.split()]


def problems():
    """Why a backend has no device, by its name."""
    return {name: listed[1:] for name, listed in _backends().items() if listed.startswith("!")}


def counts():
    """What became of the nodes of all sessions of this process, by device: how many it has `taken`, and how many of each
    other operator it has left to another provider.
    """
    found = collections.defaultdict(dict)
    for line in _text(1).splitlines():
        device, name, number = line.split("\t")
        found[device][name] = int(number)
    return dict(found)


def available():
    """The providers that ONNX Runtime has now, without a registration."""
    from onnxruntime.capi import _pybind_state

    return _pybind_state.get_available_providers()


def register():
    """Registers all offered devices with ONNX Runtime that it does not have. It may be called again at any time."""
    import onnxruntime

    with _registering:
        for name, listed in _backends().items():
            devices = [] if listed.startswith("!") else listed.split()
            for first in range(0, len(devices), _AT_ONCE):
                if not set(devices[first : first + _AT_ONCE]) <= set(available()):
                    registration = name if first == 0 else f"{name}#{first}"
                    onnxruntime.register_execution_provider_library(registration, str(LIBRARY))
