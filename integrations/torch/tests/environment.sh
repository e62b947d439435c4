#!/bin/sh
# Makes a Python environment with PyTorch and what the tests need: sh environment.sh FOLDER [VERSION]
#
# Ends with the status 3, and says so, where Python's package registry cannot be reached.
set -eu
here=$(dirname "$0")
python3 -m venv "$1"
install() { "$folder/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check "$@"; }
folder=$1
# A small package first: only where that cannot be had, there is no registry. What fails later is a failure.
if ! install typing_extensions; then
    echo "skipped: Python's package registry cannot be reached"
    exit 3
fi
install expecttest filelock fsspec jinja2 networkx numpy pytest pytest-xdist 'setuptools>=77' sympy
# PyTorch without what its wheel for CUDA asks for, 2 GB of NVIDIA's libraries: its other requirements are there.
install --no-deps "torch==${2:-$(cat "$here/torch-version")}"
"$folder/bin/python" "$here/stub_nvidia.py"
