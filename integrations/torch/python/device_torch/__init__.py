"""PyTorch on any device of the registry.

`import torch` finds this package by its entry point in the group `torch.backends`, and calls `_autoload`. It gives
PyTorch a device with the name that the variable DEVICE_TORCH chooses, and a module of that name, such as
`torch.openreg`. No device is opened before a tensor is on it.
"""

import ctypes
import pathlib
import sys
import warnings

_FOLDER = pathlib.Path(__file__).parent


def _autoload():
    """Registers the device. What goes wrong is a warning: PyTorch goes on without the device."""
    try:
        _register()
    except Exception as error:  # noqa: BLE001 # Each would end `import torch`.
        warnings.warn(f"device_torch registers no device: {error}", stacklevel=2)


def _register():
    import torch

    shim = _shim(torch.__version__)
    library = _library()
    name = library.name()
    try:
        torch.utils.rename_privateuse1_backend(name)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise RuntimeError(f"PyTorch refuses the name {name!r}: {reason}; DEVICE_TORCH_NAME is another one") from None
    functions = ctypes.CDLL(str(shim))
    register = functions.dt_register
    register.restype = ctypes.c_char_p
    if failure := register():
        raise RuntimeError(f"{shim.name} and PyTorch {torch.__version__}: {failure.decode()}")

    from device_torch import _device, _distributed, _dlpack, _later, _sharing

    module = _device.module(name, library)
    torch._register_device_module(name, module)
    sys.modules[f"torch.{name}"] = module
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    _dlpack.install(name)
    _sharing.install(name)
    _later.after_import("torch._dynamo", "device_torch._compile", name, module)
    for package in ("lightning.pytorch", "lightning.fabric", "pytorch_lightning", "lightning_fabric"):
        accelerators = f"{package}.accelerators"
        _later.after_import(accelerators, "device_torch._lightning", accelerators, name, module)
    _distributed.install(name, functions)
    _distributed.refuse_data_parallel(name)


def _shim(version):
    """The shim for a version of PyTorch: each minor version has its own, as its C++ interface changes."""
    minor = ".".join(version.split(".")[:2])
    shim = _FOLDER / f"shim-{minor}.so"
    if not shim.exists():
        known = sorted(path.stem.removeprefix("shim-") for path in _FOLDER.glob("shim-*.so"))
        raise RuntimeError(
            f"this package is built for PyTorch {', '.join(known) or 'of no version'}, and this is {version}; "
            f"`{sys.executable} -m device_torch.build` builds what it needs for {minor}, with a C++ compiler"
        )
    return shim


def _library():
    from device_torch import _native

    return _native.Library(_FOLDER / "libdevice_torch.so")
