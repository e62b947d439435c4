//! What the benchmarks share.

mod beside;
mod cores;

use std::time::Duration;

use criterion::Criterion;
use device_registry::backend::{Backend, LoadFailure};

pub use crate::beside::{beside, beside_timed};
pub use crate::cores::{Cores, keep_on};

/// The `load` of a backend that no benchmark uses.
///
/// # Panics
///
/// Always.
#[allow(clippy::missing_errors_doc)]
pub fn never() -> Result<Box<dyn Backend>, LoadFailure> {
    unreachable!("a benchmark loaded a backend that it does not use")
}

/// The settings of most benchmarks: long enough for stable ratios.
#[must_use]
pub fn criterion() -> Criterion {
    Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2))
}
