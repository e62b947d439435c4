#![doc = include_str!("../README.md")]

mod arguments;
mod cache;
mod cublaslt;
mod library;
mod nvrtc;
mod products;
mod set;

use device_kernels::{KERNEL_SETS, KernelSet, KernelSetDescriptor};
use device_registry::backend::LoadFailure;

pub use device_generated_kernels::{CustomKernel, Value};

pub use crate::cache::compilations;
pub use crate::set::launch;

device_kernels::entry_points! {
    /// The kernel set `cuda`, for programs that register it by hand.
    #[distributed_slice(KERNEL_SETS)]
    pub static CUDA_KERNELS: KernelSetDescriptor = KernelSetDescriptor::new("cuda", load);

    /// The kernel set `cuda__cublaslt`, which is asked before `cuda`, for programs that register it by hand.
    #[distributed_slice(KERNEL_SETS)]
    pub static CUDA_CUBLASLT: KernelSetDescriptor = KernelSetDescriptor::new("cuda__cublaslt", load_products);
}

fn load() -> Result<Box<dyn KernelSet>, LoadFailure> {
    Ok(Box::new(set::CudaKernels::new(nvrtc::Nvrtc::open()?)))
}

fn load_products() -> Result<Box<dyn KernelSet>, LoadFailure> {
    Ok(Box::new(products::Products::new()?))
}

#[cfg(test)]
device_registry::autoload!();
