#![doc = include_str!("../README.md")]

mod backend;
mod commands;
mod context;
mod device;
mod error;
mod event;
mod handle;
mod library;
mod memory;
mod native;
mod program;
mod properties;
mod stream;

use device_registry::backend::{BACKENDS, Backend, BackendDescriptor, LoadFailure};

/// The functions, types and constants of OpenCL, as this crate uses them, for kernels.
pub use cl3;

pub use crate::error::native_error;
pub use crate::memory::OpenClMemory;
pub use crate::native::{OpenClDevice, OpenClStream};
pub use crate::program::OpenClProgram;

device_registry::backend::entry_points! {
    /// The backend `opencl`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static OPENCL: BackendDescriptor = BackendDescriptor::new("opencl", load);
}

fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    library::open()?;
    Ok(Box::new(backend::OpenCl::new(library::platforms()?)))
}
