#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod chrome;
#[cfg(feature = "tracing")]
mod events;
mod file;
mod flight_recorder;
mod memory;
mod order;
#[cfg(feature = "read")]
mod read;
mod trace;

use device_registry::activity::{OBSERVERS, ObserverDescriptor};
use device_registry::backend::LoadFailure;

pub use crate::flight_recorder::last_records;
pub use crate::memory::{LiveAllocation, MemorySnapshot, memory_snapshot, watch_memory};
#[cfg(feature = "read")]
pub use crate::read::{ReadError, Trace, TraceMemory};
pub use crate::trace::write_to;

device_registry::backend::entry_points! {
    /// Writes a trace to the file that `DEVICE_TRACE` names.
    #[distributed_slice(OBSERVERS)]
    pub static TRACE: ObserverDescriptor = ObserverDescriptor::new("trace", trace::load);

    /// Keeps the last records, with `DEVICE_FLIGHT_RECORDER=1`.
    #[distributed_slice(OBSERVERS)]
    pub static FLIGHT_RECORDER: ObserverDescriptor =
        ObserverDescriptor::new("flight_recorder", flight_recorder::load);

    /// Prints what lives in memory when there is not enough, with `DEVICE_TRACE_ON_OOM=1`.
    #[distributed_slice(OBSERVERS)]
    pub static MEMORY: ObserverDescriptor = ObserverDescriptor::new("memory", memory::load);

    /// Makes events of the crate `tracing`.
    #[cfg(feature = "tracing")]
    #[distributed_slice(OBSERVERS)]
    pub static EVENTS: ObserverDescriptor = ObserverDescriptor::new("tracing", events::load);
}

/// Whether a variable is on. Without it, it is off.
fn is_on(variable: &str) -> Result<bool, LoadFailure> {
    let value = std::env::var(variable).unwrap_or_default();
    if value.trim().is_empty() {
        return Ok(false);
    }
    entry_points::message::parse_switch(&value).ok_or_else(|| {
        let words = entry_points::message::SWITCH_WORDS;
        LoadFailure::new(format!("invalid {variable}: expected {words}, found {value:?}"))
    })
}
