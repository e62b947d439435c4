#!/bin/sh
# Prints the first sentence of each source file below the folders, or of all crates:
#
#     sh tests/map.sh crates/device-registry/src
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- crates/*/src kernels/device-*/src
ls -d "$@" >/dev/null
find "$@" -name '*.rs' | sort | while read -r file; do
    awk -v file="$file" '
        !sub(/^\/\/! /, "") { exit }
        { text = text " " $0 }
        /\.( |$)/ { exit }
        END { if (text) { sub(/\. .*/, ".", text); print file ":" text } }
    ' "$file"
done
