"""Builds the library in Rust, and the shim for each PyTorch that is there."""

import os
import pathlib
import runpy

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).parent
# By its path: the package itself needs PyTorch.
build = runpy.run_path(str(HERE / "python" / "device_torch" / "build.py"))


class Build(build_py):
    def run(self):
        super().run()
        package = pathlib.Path(self.build_lib) / "device_torch"
        if self.editable_mode:
            package = HERE / "python" / "device_torch"
        try:
            features = os.environ.get("DEVICE_TORCH_FEATURES")
            build["build_library"](HERE, package, features)
            for torch in build["installed"]():
                build["build_shim"](torch, package)
        except build["BuildError"] as error:
            raise SystemExit(f"device-torch cannot be built: {error}") from None


class Wheel(bdist_wheel):
    def get_tag(self):
        # Its libraries include nothing of Python.
        _, _, platform = super().get_tag()
        return "py3", "none", platform


class Binary(Distribution):
    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=Binary)
