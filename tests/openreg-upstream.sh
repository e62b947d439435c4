#!/bin/sh
# Lists the test files of PyTorch's OpenReg, each with the day of its last change and whether docs/openreg-parity.md
# names it: sh tests/openreg-upstream.sh FOLDER, with a checkout of PyTorch (its history as far as the days matter).
set -eu
[ $# -eq 1 ] || { echo "usage: sh tests/openreg-upstream.sh FOLDER, a checkout of PyTorch" >&2; exit 2; }
page=$(dirname "$0")/../docs/openreg-parity.md
tests=test/cpp_extensions/open_registration_extension/torch_openreg
[ -d "$1/$tests" ] || { echo "there is no $tests in $1: is it a checkout of PyTorch?" >&2; exit 2; }
missing=0
for file in $(cd "$1" && git ls-files "$tests" | grep -E '/test_[a-z_]+\.(py|cpp)$'); do
    name=$(basename "$file")
    if grep -q "\`$name\`" "$page"; then named='on the page'; else named='NOT ON THE PAGE' missing=1; fi
    printf '%s  %-40s %s\n' "$(cd "$1" && git log -1 --format=%cs -- "$file")" "$name" "$named"
done
exit $missing
