"""The library in Rust. `csrc/device_torch.h` describes its functions."""

import ctypes
import warnings


class Library:
    """The functions that Python calls, with exceptions for their codes."""

    def __init__(self, path):
        self._functions = functions = ctypes.CDLL(str(path))
        for name in ("dt_error", "dt_describe", "dt_counts"):
            getattr(functions, name).restype = ctypes.c_char_p

    def name(self):
        """The name of the device in PyTorch, as the variables choose it."""
        name, notes = ctypes.c_char_p(), ctypes.c_char_p()
        self._check(self._functions.dt_choose(ctypes.byref(name), ctypes.byref(notes)))
        if notes.value:
            warnings.warn(notes.value.decode(), stacklevel=5)
        return name.value.decode()

    def device_count(self):
        return self._functions.dt_device_count()

    def device_name(self, device):
        """The name of a device in the registry, such as `openreg:1`."""
        name = ctypes.c_char_p()
        self._check(self._functions.dt_device_name(device, ctypes.byref(name)))
        return name.value.decode()

    def device_properties(self, device):
        """Lines of text: name, kind of the value (`s`, `i` or `b`), value."""
        lines = ctypes.c_char_p()
        self._check(self._functions.dt_device_properties(device, ctypes.byref(lines)))
        return lines.value.decode()

    def describe(self):
        return self._functions.dt_describe().decode()

    def is_forked(self):
        return bool(self._functions.dt_is_forked())

    def counts(self):
        """Lines of text: operator, who computed, type, calls, nanoseconds, bytes, operators in one call."""
        return self._functions.dt_counts().decode()

    def reset_counts(self):
        self._functions.dt_reset_counts()

    def _check(self, code):
        if code != 0:
            raise RuntimeError(self._functions.dt_error().decode())
