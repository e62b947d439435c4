#!/bin/sh
# Makes a Python environment with ONNX Runtime and what the tests need: sh environment.sh FOLDER [VERSION]
#
# Ends with the status 3, and says so, where Python's package registry cannot be reached.
set -eu
here=$(dirname "$0")
python3 -m venv "$1"
folder=$1
install() { "$folder/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check "$@"; }
# A small package first: only where that cannot be had, there is no registry. What fails later is a failure.
if ! install typing_extensions; then
    echo "skipped: Python's package registry cannot be reached"
    exit 3
fi
install numpy onnx==1.23.2 pytest 'setuptools>=77' "onnxruntime==${2:-$(cat "$here/onnxruntime-version")}"
