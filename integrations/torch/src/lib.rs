//! PyTorch on any registered device: what the shim in C++ calls.
//!
//! `shim.cpp`, in `python/device_torch/csrc`, registers PyTorch's half of a device, its allocator, guard,
//! hooks and operators, and knows no backend. It calls the functions of `device_torch.h` beside it, which
//! [`abi`] exports.

#![deny(unsafe_code)]

device_registry::autoload!();

// The border to C++.
#[allow(unsafe_code)]
mod abi;
mod activity;
mod choice;
mod copies;
mod counts;
mod devices;
mod events;
mod expressions;
mod failure;
// A handler that the system calls in a child.
#[allow(unsafe_code)]
mod forks;
mod host_memory;
mod memory;
mod operators;
// Processes.
#[allow(unsafe_code)]
mod own_process;
mod streams;
