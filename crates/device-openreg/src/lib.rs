#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod allocator;
mod backend;
mod device;
// `pthread_atfork`.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[allow(unsafe_code)]
mod fork;
mod location;
// `mmap`, and memory made from raw pointers into the mapping.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[allow(unsafe_code)]
mod mapping;
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
use plain as mapping;
mod memory;
// Other targets use it in place of `mapping`.
#[cfg_attr(
    all(target_os = "linux", target_pointer_width = "64"),
    expect(dead_code, reason = "only tests use it")
)]
mod plain;
// Decides which bytes belong to which allocation.
#[allow(unsafe_code)]
mod pool;
mod settings;

use std::env;

use device_registry::backend::{BACKENDS, Backend, BackendDescriptor, LoadFailure, Options};

pub use crate::location::{Location, locate};
pub use crate::memory::OpenRegMemory;

device_registry::backend::entry_points! {
    /// The backend `openreg`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static OPENREG: BackendDescriptor =
        BackendDescriptor::with_options("openreg", load, settings::OPTIONS);
}

fn load(options: &Options) -> Result<Box<dyn Backend>, LoadFailure> {
    // A backend for hardware looks for its driver here, and returns `LoadFailure::unavailable` if there is
    // none. A use looks again after `LoadFailure::UNAVAILABLE_FOR`.
    let settings = settings::Settings::read(options, |name| env::var_os(name))?;
    Ok(Box::new(backend::OpenReg::new(settings)))
}
