#!/bin/sh
# Installs what the tests of tests/platforms.rs and tests/windows_plugins.rs need, on Debian 12 as root: linkers, C
# compilers, Wine, node, and a Rust with the sources of its standard library, from which the tests build it for each
# target. Where rustup can add a target, `rustup target add` does as well, and the tests use that.
#
# It can be run again at any time, and then takes a second.
set -eu
cd "$(dirname "$0")/.."

packages="binutils gcc lld mold musl-tools gcc-mingw-w64-x86-64 wine64 wasi-libc rustc-web rust-web-src"
if ! command -v node >/dev/null; then
    packages="$packages nodejs"
fi

# Word splitting is what makes it a list.
# shellcheck disable=SC2086
sh tests/install-packages.sh $packages

# They may have been there in the version of Debian's first release, before its updates.
minimum=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if dpkg --compare-versions "$(dpkg-query --show --showformat '${Version}' rustc-web)" lt "$minimum"; then
    apt-get update --quiet=2
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --only-upgrade rustc-web rust-web-src >/dev/null
fi

# The tests build offline. What other targets need, and what the standard library needs, is not part of a build for
# this one.
cargo fetch --quiet --locked
RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 cargo fetch --quiet --locked -Zbuild-std=std,panic_abort \
    --target x86_64-unknown-linux-musl --target x86_64-pc-windows-gnu \
    --target wasm32-unknown-unknown --target wasm32-wasip1

# Not a package of Debian's, and not on every mirror. Without it, its tests say that they are skipped.
rustup component add --toolchain nightly miri rust-src || echo 'Miri is not to be had here'
