// What the shim calls of `compositions.cpp`.

#pragma once

#include <torch/library.h>

// Registers operators of the device, and those that automatic derivation sees through.
void register_compositions(torch::Library& device, torch::Library& autograd);
