#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod allocator;
mod backend;
mod device;
mod faults;
// The C library reports forks.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[allow(unsafe_code)]
mod fork;
mod location;
// Two mappings of one object, and parts of it that are each one allocation's.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[allow(unsafe_code)]
mod mapping;
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
use plain as mapping;
mod memory;
// Elsewhere it takes the place of `mapping`.
#[cfg_attr(
    all(target_os = "linux", target_pointer_width = "64"),
    expect(dead_code, reason = "only tests use it")
)]
mod plain;
// Here it is decided which bytes are whose.
#[allow(unsafe_code)]
mod pool;
mod settings;

use device_registry::backend::{BACKENDS, Backend, BackendDescriptor, LoadFailure};

pub use crate::location::{Location, locate};
pub use crate::memory::OpenRegMemory;

device_registry::backend::entry_points! {
    /// The backend `openreg`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static OPENREG: BackendDescriptor = BackendDescriptor::new("openreg", load);
}

fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    // A backend for hardware looks for its driver here, and returns `LoadFailure::unavailable` if there is none.
    Ok(Box::new(backend::OpenReg::new(settings::Settings::from_env()?)))
}
