#!/bin/sh
# Builds both backends into a folder, with their manifests: sh build.sh FOLDER
set -eu
here=$(dirname "$0")
for name in myc mycqueue; do
    # The headers lie beside a copy of this folder, or in this repository.
    ${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -fPIC -shared -fvisibility=hidden -pthread \
        -I "$here" -I "$here/../../../crates/device-plugin/include" \
        -I "$here/../../../kernels/device-kernels-plugin/include" "$here/$name.c" -o "$1/lib$name.so" ${CFLAGS-}
    # `install` and not `cp`: a program refuses files that others can write to, such as those under the umask 002.
    chmod go-w "$1/lib$name.so"
    for manifest in "$here/$name.plugin.json" "$here/${name}_kernels.plugin.json"; do
        [ ! -f "$manifest" ] || install -m 644 "$manifest" "$1"
    done
done
