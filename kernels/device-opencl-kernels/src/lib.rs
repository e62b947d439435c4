#![doc = include_str!("../README.md")]

mod cache;
mod enqueue;
mod program;
mod set;

pub use device_generated_kernels::{CustomKernel, Value};
use device_kernels::{KERNEL_SETS, KernelSet, KernelSetDescriptor};
use device_registry::backend::LoadFailure;

pub use crate::cache::compilations;
pub use crate::set::launch;
#[doc(hidden)]
pub use crate::set::plan_groups;

device_kernels::entry_points! {
    /// The kernel set `opencl`, for programs that register it by hand.
    #[distributed_slice(KERNEL_SETS)]
    pub static OPENCL_KERNELS: KernelSetDescriptor = KernelSetDescriptor::new("opencl", load);
}

fn load() -> Result<Box<dyn KernelSet>, LoadFailure> {
    Ok(Box::new(set::OpenClKernels))
}

#[cfg(test)]
device_registry::autoload!();
