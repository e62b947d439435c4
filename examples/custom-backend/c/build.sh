#!/bin/sh
# Builds the backend into a folder, with its manifest: sh build.sh FOLDER
set -eu
name=myc
here=$(dirname "$0")
# The header lies beside a copy of this folder, or in this repository.
${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -fPIC -shared -fvisibility=hidden -pthread \
    -I "$here" -I "$here/../../../crates/device-plugin/include" "$here/$name.c" -o "$1/lib$name.so" ${CFLAGS-}
# `install` and not `cp`: a program refuses files that others can write to, such as those under the umask 002.
chmod go-w "$1/lib$name.so"
[ ! -f "$here/$name.plugin.json" ] || install -m 644 "$here/$name.plugin.json" "$1"
