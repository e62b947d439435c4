"""Builds the parts of this package that are not Python.

For a PyTorch that the package does not know yet, this builds the one file that it needs, with a C++ compiler:

    python -m device_torch.build

With folders of other installations of PyTorch as arguments, it builds for those.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent import futures


# The files of the shim, in `csrc`.
SOURCES = ["shim.cpp", "compositions.cpp", "profiler.cpp"]


class BuildError(Exception):
    """Why it cannot be built, and what to do."""


def build_library(source, into, features=None):
    """Builds the library in Rust. `features` are those of Cargo.toml, such as `openreg,wgpu`, in the place of the
    default ones."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise BuildError("`cargo` is not in PATH: install Rust 1.95 or later, as https://rustup.rs says")
    command = [cargo, "build", "--release", "--manifest-path", str(source / "Cargo.toml")]
    if (source / "Cargo.lock").exists():
        command.append("--locked")
    if features is not None:
        command += ["--no-default-features", "--features", features]
    _run(command)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", source / "target"))
    into.mkdir(parents=True, exist_ok=True)
    shutil.copy2(target / "release" / "libdevice_torch.so", into)


def installed():
    """The folders of PyTorch: that of this environment, and those in DEVICE_TORCH_BUILD_FOR."""
    listed = os.environ.get("DEVICE_TORCH_BUILD_FOR", "")
    folders = [pathlib.Path(folder) for folder in listed.split(os.pathsep) if folder]
    # Also where pip builds in an environment of its own, this is the one that it installs into.
    here = pathlib.Path(sysconfig.get_path("purelib")) / "torch"
    if not folders and not (here / "version.py").exists():
        raise BuildError(f"there is no PyTorch in {here.parent}: install `torch` first")
    return folders or [here]


def build_shim(torch, into):
    """Builds the shim for the PyTorch in a folder, and returns its path."""
    about = torch / "version.py"
    version = re.search(r"__version__ = '(\d+\.\d+)", about.read_text()) if about.exists() else None
    if version is None:
        raise BuildError(f"{torch} is no PyTorch: its version.py says no version")
    if not (into / "libdevice_torch.so").exists():
        raise BuildError(f"there is no libdevice_torch.so in {into}: `pip install` of the checkout builds it")
    shim = into / f"shim-{version[1]}.so"
    folder = pathlib.Path(__file__).parent / "csrc"
    names = list(SOURCES)
    # A PyTorch that was built without `torch.distributed` lacks these headers.
    if (torch / "include" / "torch" / "csrc" / "distributed" / "c10d" / "ProcessGroup.hpp").exists():
        names.append("process_group.cpp")
    options = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"]
    options += ["-isystem", str(torch / "include"), "-isystem", str(torch / "include" / "kineto")]
    options += os.environ.get("DEVICE_TORCH_CXXFLAGS", "").split()
    with tempfile.TemporaryDirectory() as objects, futures.ThreadPoolExecutor(os.cpu_count()) as pool:

        def compile_one(name):
            made = str(pathlib.Path(objects, name).with_suffix(".o"))
            _run([*_compiler(), *options, "-c", str(folder / name), "-o", made])
            return made

        made = list(pool.map(compile_one, names))
        _run(
            [*_compiler(), "-shared", *made, "-o", str(shim), f"-L{into}", "-ldevice_torch", f"-L{torch / 'lib'}"]
            + ["-lc10", "-ltorch_cpu", "-Wl,-rpath,$ORIGIN", "-Wl,--strip-all"]
        )
    return shim


def _compiler():
    chosen = os.environ.get("CXX", "").split()
    for compiler in [chosen] if chosen else (["c++"], ["g++"], ["clang++"]):
        if shutil.which(compiler[0]):
            return compiler
    missing = f"`{chosen[0]}`, which CXX names, is not in PATH" if chosen else "there is no C++ compiler in PATH"
    raise BuildError(f"{missing}: install g++ or clang++, or name one in CXX")


def _run(command):
    try:
        subprocess.run(command, check=True)
    except subprocess.CalledProcessError as error:
        raise BuildError(f"{pathlib.Path(command[0]).name} failed with status {error.returncode}") from None


def main():
    package = pathlib.Path(__file__).parent
    try:
        for torch in [pathlib.Path(folder) for folder in sys.argv[1:]] or installed():
            print(build_shim(torch, package))
    except BuildError as error:
        sys.exit(f"device_torch.build: {error}")


if __name__ == "__main__":
    # `python -m` imports the package first, and with it PyTorch, whose autoload then warns of the missing file.
    main()
