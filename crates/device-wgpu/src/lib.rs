#![doc = include_str!("../README.md")]

mod apis;
mod backend;
mod context;
mod device;
mod error;
mod event;
mod loss;
mod mapping;
mod memory;
mod native;
mod properties;
mod reads;
mod ready;
mod staging;
mod stream;
mod submission;
mod transfer;

use device_registry::backend::{BACKENDS, Backend, BackendDescriptor, LoadFailure};

/// The crate of all native handles.
pub use wgpu;

pub use crate::memory::WgpuMemory;
pub use crate::native::{WgpuDevice, WgpuStream};

device_registry::backend::entry_points! {
    /// The backend `wgpu`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static WGPU: BackendDescriptor = BackendDescriptor::new("wgpu", load);
}

fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    let chosen = apis::Apis::from_env()?;
    let (instance, adapters) =
        chosen.adapters().ok_or_else(|| LoadFailure::unavailable(chosen.why_there_is_none()))?;
    Ok(Box::new(backend::Wgpu::new(instance, adapters)))
}
