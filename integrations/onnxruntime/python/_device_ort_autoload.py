"""What makes the devices known without a line in the program.

Python runs `wait_for_onnxruntime` when it starts. It imports nothing but what Python has imported already, and does
nothing until a program imports ONNX Runtime. The devices are registered when the program first asks for its providers,
or names one that is a device: until then no backend is loaded.
"""

import os
import sys


def wait_for_onnxruntime():
    """Prepares for an import of ONNX Runtime, unless a variable forbids it."""
    if "0" in (os.environ.get("DEVICE_BACKEND_AUTOLOAD"), os.environ.get("DEVICE_ORT_AUTOLOAD")):
        return
    sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds no module itself. Of `onnxruntime` it adds to what the module does when it is loaded.

    It stays, as a module is also searched for by programs that only ask whether it is there.
    """

    searches = False

    def find_spec(self, name, path=None, target=None):
        if name != "onnxruntime" or self.searches:
            return None
        import importlib.util

        self.searches = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.searches = False
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_extend(module):
                load(module)
                extend(module)

            spec.loader.exec_module = load_and_extend
        return spec


def extend(module):
    """Lets ONNX Runtime's functions register the devices at their first use."""
    import functools

    def registering(function):
        @functools.wraps(function)
        def call(*arguments, **options):
            _register()
            return function(*arguments, **options)

        return call

    for name in ("get_available_providers", "get_ep_devices"):
        function = getattr(module, name, None)
        if function is not None:
            setattr(module, name, registering(function))
    # A policy chooses among the devices that are registered.
    for name in ("set_provider_selection_policy", "set_provider_selection_policy_delegate"):
        function = getattr(module.SessionOptions, name, None)
        if function is not None:
            setattr(module.SessionOptions, name, registering(function))
    session = module.InferenceSession
    create = session.__init__
    choose = session.set_providers

    @functools.wraps(create)
    def create_with_devices(self, path_or_bytes, sess_options=None, providers=None, *arguments, **options):
        _check(providers)
        create(self, path_or_bytes, sess_options, providers, *arguments, **options)

    @functools.wraps(choose)
    def set_providers(self, providers=None, *arguments, **options):
        _check(providers)
        return choose(self, providers, *arguments, **options)

    session.__init__ = create_with_devices
    session.set_providers = set_providers


def _register():
    """Registers the devices. A failure must not end a program that may want none of them: it is a warning."""
    import warnings

    import device_ort

    try:
        device_ort.register()
    except Exception as error:
        warnings.warn(str(error), stacklevel=3)


def _check(providers):
    """Registers the devices if one is named, and raises an error for a name that is no provider: ONNX Runtime would warn,
    and compute on the CPU.
    """
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers or ()]
    named = [name for name in names if not name.endswith("ExecutionProvider")]
    if not named:
        return
    import device_ort

    device_ort.register()
    available = device_ort.available()
    for name in named:
        if name in available:
            continue
        backend = name.partition(":")[0]
        known = device_ort.problems()
        why = f": {known[backend]}" if backend in known else ""
        raise ValueError(
            f"`{name}` is no device that ONNX Runtime is offered{why}; expected one of {device_ort.devices()}. Simulated "
            f"devices and `cpu` are offered where the variable DEVICE_ORT names their backend, as in DEVICE_ORT={backend}"
        )
