"""Makes empty NVIDIA libraries, so that PyTorch's wheel for CUDA loads without 2 GB of real ones. For tests only.

The wheel that a package registry has for x86-64 Linux is built for CUDA, and its libraries need NVIDIA's to be
loaded at all. This reads which symbols they need (with `readelf`, of binutils), and compiles libraries that
define them. Each function returns 100, which for CUDA's runtime is `cudaErrorNoDevice`: PyTorch then says that
there is no CUDA device, in the words of the functions of `TEXTS`. The libraries go beside PyTorch's own, where its
loader looks first.

    python stub_nvidia.py
"""

import collections
import importlib.util
import pathlib
import re
import subprocess
import tempfile

NVIDIA = re.compile(r"lib(cu|nv|nccl)[A-Za-z_]*(\.so)")
# PyTorch reads what they return as a text: a number would end the process. transformers asks in each attention mask
# whether a CUDA graph is captured, and catches the error.
TEXTS = {"cudaGetErrorName", "cudaGetErrorString"}


def main():
    lib = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0]) / "lib"
    missing = collections.defaultdict(lambda: collections.defaultdict(set))
    for path in lib.glob("*.so*"):
        collect(path, lib, missing)
    for name, versions in missing.items():
        build(lib / name, versions)
    count = sum(len(symbols) for versions in missing.values() for symbols in versions.values())
    print(f"{len(missing)} empty libraries with {count} symbols in {lib}")


def collect(path, lib, missing):
    """Adds what `path` needs of NVIDIA's libraries: library -> version -> symbols."""
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d", path))
    absent = [name for name in needed if NVIDIA.match(name) and not (lib / name).exists()]
    for name in absent:
        missing[name]
    owner = {}
    library = None
    for line in readelf("-V", path).splitlines():
        if found := re.search(r"File: (\S+)", line):
            library = found[1]
        if found := re.search(r"Name: (\S+)", line):
            owner[found[1]] = library
    for line in readelf("--dyn-syms", path).splitlines():
        if not (found := re.search(r" UND (\w+)(?:@(\S+))?", line)):
            continue
        symbol, version = found[1], found[2]
        if owner.get(version) in absent:
            missing[owner[version]][version].add(symbol)
        elif version is None and absent and re.match(r"cu|nv|nccl", symbol):
            # Symbols without a version are looked for in every library.
            missing[absent[0]][None].add(symbol)


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], check=True, capture_output=True, text=True).stdout


def build(path, versions):
    with tempfile.TemporaryDirectory() as folder:
        source, script = pathlib.Path(folder, "stub.c"), pathlib.Path(folder, "stub.map")
        symbols = sorted(set().union(*versions.values()))
        source.write_text("".join(map(function, symbols)))
        named = {version: names for version, names in versions.items() if version}
        script.write_text("".join(f"{version} {{ global: {'; '.join(sorted(names))}; }};\n" for version, names in named.items()))
        command = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{path.name}", "-o", path, source]
        if named:
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)


def function(symbol):
    if symbol in TEXTS:
        return f'const char *{symbol}(void) {{ return "no CUDA device"; }}\n'
    return f"int {symbol}(void) {{ return 100; }}\n"


if __name__ == "__main__":
    main()
