#!/bin/sh
# Builds the backend into a folder, with its manifests: sh build.sh FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$(cd "$1" && pwd)
cd "$here"
# The repository that has the headers.
registry='{{registry}}'
${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -fPIC -shared -fvisibility=hidden -pthread \
    -I "$registry/crates/device-plugin/include" -I "$registry/kernels/device-kernels-plugin/include" \
    '{{backend}}.c' -o "$folder/lib{{backend}}.so" ${CFLAGS-}
# A program refuses files that others can write to.
chmod go-w "$folder/lib{{backend}}.so"
install -m 644 '{{backend}}.plugin.json' '{{backend}}_kernels.plugin.json' "$folder"
