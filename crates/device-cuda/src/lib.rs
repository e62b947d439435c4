#![cfg_attr(feature = "backend", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "backend"),
    doc = "The types and functions of CUDA's driver, for kernels; the backend is left out."
)]
// The modules that stay are the backend's too.
#![cfg_attr(not(feature = "backend"), allow(dead_code, unreachable_pub, unused_imports))]

#[cfg(feature = "backend")]
mod backend;
mod context;
#[cfg(feature = "backend")]
mod device;
mod error;
mod event;
pub mod handles;
mod library;
mod memory;
mod native;
#[cfg(feature = "backend")]
mod properties;
mod reads;
mod stream;

#[cfg(feature = "backend")]
use device_registry::backend::{BACKENDS, Backend, BackendDescriptor, LoadFailure};

pub use cudarc;

pub use crate::error::check;
pub use crate::event::CudaEvent;
pub use crate::library::driver_version;
pub use crate::library::{CudaBatch, CudaKernel, CudaTemporary};
pub use crate::memory::CudaMemory;
pub use crate::native::{CudaDevice, CudaStream};

#[cfg(feature = "backend")]
device_registry::backend::entry_points! {
    /// The backend `cuda`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static CUDA: BackendDescriptor = BackendDescriptor::new("cuda", load);
}

#[cfg(feature = "backend")]
fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(backend::Cuda::load()?))
}
