#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod backend;
mod device;
mod memory;

use device_registry::{BACKENDS, Backend, BackendDescriptor, LoadFailure};

device_registry::entry_points! {
    /// The backend `openreg`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static OPENREG: BackendDescriptor = BackendDescriptor::new("openreg", load);
}

fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    // A backend for hardware looks for its driver here, and returns `LoadFailure::unavailable` if there is none.
    Ok(Box::new(backend::OpenReg::new()))
}
