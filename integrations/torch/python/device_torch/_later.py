"""Tells a library of the device when the program imports it, so that `import torch` imports nothing for that."""

import importlib
import sys
import warnings


def after_import(library, ours, *arguments):
    """Calls `register(*arguments)` of a module of this package once a module of the library was imported; now, if it
    was. An exception is a warning."""
    if library in sys.modules:
        _register(library, ours, arguments)
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.waiting.setdefault(library, []).append((ours, arguments))


def _register(library, ours, arguments):
    try:
        importlib.import_module(ours).register(*arguments)
    except Exception as error:  # noqa: BLE001 # Each would end the program's import of the library.
        message = f"device_torch registers no device in {library}: {type(error).__name__}: {error}"
        warnings.warn(message, stacklevel=3)


class _Finder:
    """Finds modules as the other finders do, and has a loader register what waits for its module."""

    def __init__(self):
        self.waiting = {}

    def find_spec(self, name, path=None, target=None):
        if name not in self.waiting:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            for ours, arguments in self.waiting.pop(name, []):
                _register(name, ours, arguments)

        spec.loader.exec_module = exec_module
        return spec


_FINDER = _Finder()
