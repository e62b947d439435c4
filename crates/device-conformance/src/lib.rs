#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod alone;
mod check;
mod checks;
mod context;
mod failure;
mod faults;
mod isolate;
mod lanes;
mod lists;
mod mirrored;
mod outcome;
mod possessions;
mod present;
pub mod process;
mod programs;
mod standing;
mod suite;
mod summary;

pub use crate::check::{Check, DEFAULT_TIME_LIMIT, checks};
pub use crate::outcome::Outcome;
pub use crate::present::device_or_skip;
// Not public API. Used by this repository's fuzz targets.
#[doc(hidden)]
pub use crate::programs::run_program_of;
pub use crate::suite::{Suite, run};
