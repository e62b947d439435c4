#![cfg_attr(feature = "backend", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "backend"),
    doc = "The types and functions of OpenCL, for kernels; the backend is left out."
)]
// The modules that stay are the backend's too.
#![cfg_attr(not(feature = "backend"), allow(dead_code, unreachable_pub))]

#[cfg(feature = "backend")]
mod backend;
#[cfg(feature = "backend")]
mod commands;
mod context;
#[cfg(feature = "backend")]
mod device;
mod error;
#[cfg(feature = "backend")]
mod event;
#[cfg(feature = "backend")]
mod faults;
mod functions;
mod handle;
pub mod handles;
mod library;
#[cfg(feature = "backend")]
mod memory;
mod native;
mod program;
#[cfg(feature = "backend")]
mod properties;
#[cfg(feature = "backend")]
mod queue;
#[cfg(feature = "backend")]
mod reads;
#[cfg(feature = "backend")]
mod stream;
pub mod sys;

#[cfg(feature = "backend")]
use device_registry::backend::testing::FaultCounter;
#[cfg(feature = "backend")]
use device_registry::backend::{BACKENDS, Backend, BackendDescriptor, LoadFailure, Options};

pub use crate::error::OpenClError;
pub use crate::functions::OpenClFunctions;
#[cfg(feature = "backend")]
pub use crate::memory::OpenClMemory;
pub use crate::native::OpenClDevice;
#[cfg(feature = "backend")]
pub use crate::native::OpenClStream;
pub use crate::program::OpenClProgram;

#[cfg(feature = "backend")]
device_registry::backend::entry_points! {
    /// The backend `opencl`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static OPENCL: BackendDescriptor =
        BackendDescriptor::with_options("opencl", load, &[FaultCounter::OPTION]);
}

#[cfg(feature = "backend")]
fn load(options: &Options) -> Result<Box<dyn Backend>, LoadFailure> {
    let offers_faults = FaultCounter::is_requested(options)?;
    let functions = OpenClFunctions::open()?;
    Ok(Box::new(backend::OpenCl::new(functions, library::platforms(functions)?, offers_faults)))
}
