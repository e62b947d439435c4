#!/bin/sh
# Installs drivers that need no hardware, on Debian 12 as root: PoCL for OpenCL and Mesa's llvmpipe for Vulkan, each
# with its loader, and the validation layer of Vulkan. With them the backends for real hardware have a device to be tested on.
#
# It can be run again at any time, and then takes no time.
set -eu
cd "$(dirname "$0")/.."

sh tests/install-packages.sh ocl-icd-libopencl1 pocl-opencl-icd libvulkan1 mesa-vulkan-drivers vulkan-validationlayers
