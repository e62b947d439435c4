#![doc = include_str!("../README.md")]

mod backend;
mod commands;
mod context;
mod device;
mod error;
mod event;
mod functions;
mod handle;
mod library;
mod memory;
mod native;
mod program;
mod properties;
mod stream;
pub mod sys;

use device_registry::backend::{BACKENDS, Backend, BackendDescriptor, LoadFailure};

pub use crate::error::OpenClError;
pub use crate::functions::OpenClFunctions;
pub use crate::memory::OpenClMemory;
pub use crate::native::{OpenClDevice, OpenClStream};
pub use crate::program::OpenClProgram;

device_registry::backend::entry_points! {
    /// The backend `opencl`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static OPENCL: BackendDescriptor = BackendDescriptor::new("opencl", load);
}

fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    let functions = OpenClFunctions::open()?;
    Ok(Box::new(backend::OpenCl::new(functions, library::platforms(functions)?)))
}
