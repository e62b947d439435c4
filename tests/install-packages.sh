#!/bin/sh
# Installs the Debian packages that it is given, as root, and takes no time if they are there.
#
#     sh tests/install-packages.sh PACKAGE...
set -eu

missing=
for package; do
    status=$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

export DEBIAN_FRONTEND=noninteractive
install() {
    # Word splitting is what makes it a list.
    # shellcheck disable=SC2086
    apt-get install --yes --quiet=2 --no-install-recommends $missing >/dev/null
}
# First, as lists that are old name old versions. Without a network, what the lists have may do.
apt-get update --quiet=2 || true
install
