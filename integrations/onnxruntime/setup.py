"""Builds the library in Rust, and adds the file that Python reads when it starts."""

import os
import pathlib
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).parent


def build_library(into):
    cargo = shutil.which("cargo")
    if cargo is None:
        raise SystemExit(
            "device-ort cannot be built: `cargo` is not in PATH: install Rust 1.95 or later, as https://rustup.rs says"
        )
    command = [cargo, "build", "--release", "--locked", "--manifest-path", str(HERE / "Cargo.toml")]
    features = os.environ.get("DEVICE_ORT_FEATURES")
    if features is not None:
        command += ["--no-default-features", "--features", f"shared-library,{features}"]
    if subprocess.run(command).returncode != 0:
        raise SystemExit("device-ort cannot be built: `cargo build` failed, as it says above")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target"))
    into.mkdir(parents=True, exist_ok=True)
    shutil.copy2(target / "release" / "libdevice_ort.so", into)


class Build(build_py):
    def run(self):
        super().run()
        lib = pathlib.Path(self.build_lib)
        build_library(lib / "device_ort")
        # Beside the packages: there Python reads it.
        shutil.copy2(HERE / "python" / "device_ort.pth", lib)


class Wheel(bdist_wheel):
    def get_tag(self):
        # Its library includes nothing of Python.
        _, _, platform = super().get_tag()
        return "py3", "none", platform


class Binary(Distribution):
    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=Binary)
