#!/bin/sh
# Makes the pictures of these docs, from what the command `devices` prints on this machine: needs Python 3 and, for the
# devices that the pictures show, PoCL and Mesa (`tests/install-drivers.sh`).
set -eu
cd "$(dirname "$0")/../.."
cargo build -q --release -p devices
devices=${CARGO_TARGET_DIR:-target}/release/devices
# Else a layer of Mesa's complains that there is no desktop.
export NODEVICE_SELECT=1
CLICOLOR_FORCE=1 "$devices" | python3 docs/pictures/terminal.py devices >docs/pictures/devices.svg
"$devices" bench openreg:0 opencl:0 --chart docs/pictures/bench.svg
