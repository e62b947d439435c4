#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod availability;
mod backend_lock;
mod busy;
mod check;
mod checks;
mod context;
mod device_or_skip;
mod devices;
mod environment;
mod expectations;
mod failure;
mod fault_injection;
pub mod harness;
mod hung;
mod outcome;
pub mod process;
mod process_resources;
mod programs;
mod ranges;
mod shadowed_buffer;
mod subprocess;
mod suite;
mod summary;
pub mod testing;
mod verdict;
mod watchdog;

pub use crate::check::{Check, DEFAULT_TIME_LIMIT};
pub use crate::checks::checks;
pub use crate::device_or_skip::device_or_skip;
pub use crate::outcome::Outcome;
// Not public API. Used by this repository's fuzz targets.
#[doc(hidden)]
pub use crate::programs::run_program_of;
pub use crate::suite::{Suite, run};
