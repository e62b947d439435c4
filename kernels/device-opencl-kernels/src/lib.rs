#![doc = include_str!("../README.md")]

mod cache;
mod disk;
mod enqueue;
mod generate;
mod place;
mod program;
mod quick_hash;
mod set;

use device_kernels::{KERNEL_SETS, KernelSet, KernelSetDescriptor};
use device_registry::backend::LoadFailure;

pub use crate::cache::compilations;
#[doc(hidden)]
pub use crate::disk::replace_program;
pub use crate::generate::element::Value;
pub use crate::set::CustomKernel;
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
