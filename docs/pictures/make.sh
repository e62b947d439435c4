#!/bin/sh
# Makes the pictures of README.md and docs/performance.md, from what the command `devices` prints on this machine. It
# needs Python 3 and, for the devices that they show, PoCL and Mesa (`tests/install-drivers.sh`).
set -eu
cd "$(dirname "$0")/../.."
# Else a layer of Mesa's complains that there is no desktop.
export NODEVICE_SELECT=1
CLICOLOR_FORCE=1 cargo run -q -p devices | python3 docs/pictures/terminal.py devices >docs/pictures/devices.svg
cargo run --release -q -p devices -- bench openreg:0 opencl:0 --chart docs/pictures/bench.svg
