#![doc = include_str!("../README.md")]

mod backend;
mod context;
mod device;
mod error;
mod event;
mod library;
mod memory;
mod native;
mod properties;
mod reads;
mod stream;

use device_registry::backend::{BACKENDS, Backend, BackendDescriptor, LoadFailure};

pub use cudarc;

pub use crate::error::check;
pub use crate::event::CudaEvent;
pub use crate::memory::CudaMemory;
pub use crate::native::{CudaDevice, CudaStream};

device_registry::backend::entry_points! {
    /// The backend `cuda`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static CUDA: BackendDescriptor = BackendDescriptor::new("cuda", load);
}

fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(backend::Cuda::load()?))
}
