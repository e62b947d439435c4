#![doc = include_str!("../README.md")]

mod apis;
mod backend;
mod batch;
mod context;
mod device;
mod error;
mod event;
mod faults;
mod loss;
mod mapping;
mod memory;
mod native;
mod pool;
mod properties;
mod ready;
mod staging;
mod stream;
mod submission;
mod transfer;

use device_registry::backend::testing::FaultCounter;
use device_registry::backend::{BACKENDS, Backend, BackendDescriptor, LoadFailure, Options};

/// The crate of all native handles.
pub use wgpu;

pub use crate::memory::WgpuMemory;
pub use crate::native::{WgpuDevice, WgpuStream};

device_registry::backend::entry_points! {
    /// The backend `wgpu`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static WGPU: BackendDescriptor =
        BackendDescriptor::with_options("wgpu", load, &[FaultCounter::OPTION]);
}

fn load(options: &Options) -> Result<Box<dyn Backend>, LoadFailure> {
    let offers_faults = FaultCounter::is_requested(options)?;
    let chosen = apis::Apis::from_env()?;
    let (instance, adapters) =
        chosen.adapters().ok_or_else(|| LoadFailure::unavailable(chosen.why_there_is_none()))?;
    Ok(Box::new(backend::Wgpu::new(instance, adapters, offers_faults)))
}
