#!/bin/sh
# Builds one wheel for several versions of PyTorch, and uses it with each of them:
#
#     sh wheels.sh FOLDER VERSION...
#
# FOLDER/dist gets the wheel, and FOLDER/VERSION a Python environment with that PyTorch, half a gigabyte each, and
# the wheel. Ends with the status 3, and says so, where Python's package registry cannot be reached.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift

packages=
for version; do
    sh "$here/tests/environment.sh" "$folder/$version" "$version"
    torch=$("$folder/$version/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch
    packages=${packages:+$packages:}$torch
done
DEVICE_TORCH_BUILD_FOR=$packages "$folder/$1/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
    --wheel-dir "$folder/dist" "$here"

# Not in this folder, whose `python` has the same package without its libraries.
cd "$folder"
for version; do
    "$version/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps dist/*.whl
    printed=$(DEVICE_TORCH=openreg "$version/bin/python" -c \
        'import torch; print(torch.__version__, torch.tensor([1, 2, 3], device="openreg"))')
    echo "$printed"
    case $printed in
        "$version"*" tensor([1, 2, 3], device='openreg:0')") ;;
        *) exit 1 ;;
    esac
done
ls "$folder"/dist/*.whl
