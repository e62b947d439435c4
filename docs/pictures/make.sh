#!/bin/sh
# Makes the picture of README.md, from what the command `devices` prints on this machine: needs Python 3 and, for the
# devices that it shows, PoCL and Mesa (`tests/install-drivers.sh`).
set -eu
cd "$(dirname "$0")/../.."
# Else a layer of Mesa's complains that there is no desktop.
export NODEVICE_SELECT=1
CLICOLOR_FORCE=1 cargo run -q -p devices | python3 docs/pictures/terminal.py devices >docs/pictures/devices.svg
