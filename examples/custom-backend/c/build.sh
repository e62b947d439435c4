#!/bin/sh
# Builds both backends into a folder, with their manifests: sh build.sh FOLDER
set -eu
here=$(dirname "$0")
for name in myc mycqueue; do
    # The header lies beside a copy of this folder, or in this repository.
    ${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -fPIC -shared -fvisibility=hidden -pthread \
        -I "$here" -I "$here/../../../crates/device-plugin/include" "$here/$name.c" -o "$1/lib$name.so" ${CFLAGS-}
    # `install` and not `cp`: a program refuses files that others can write to, such as those under the umask 002.
    chmod go-w "$1/lib$name.so"
    [ ! -f "$here/$name.plugin.json" ] || install -m 644 "$here/$name.plugin.json" "$1"
done
