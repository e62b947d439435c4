//! Which checks catch which defect, on which twin.
//!
//! The rows stand in the folder `table`, by the theme of the defect: search it for `GROUP::CHECK`.

mod allocations;
mod devices;
mod failures;
mod queues;
mod transfers;

use crate::defect::Defect;
use crate::twin::Twin;

/// A twin with a defect, and checks that fail on it: checks that are about the defect, or that few other
/// defects fail.
pub(crate) struct Row {
    pub(crate) defect: Defect,
    pub(crate) twin: &'static Twin,
    pub(crate) checks: &'static [&'static str],
    /// Whether these checks hang instead of failing.
    pub(crate) hangs: bool,
}

const fn fails(defect: Defect, twin: &'static Twin, checks: &'static [&'static str]) -> Row {
    Row { defect, twin, checks, hangs: false }
}

const fn hangs(defect: Defect, twin: &'static Twin, checks: &'static [&'static str]) -> Row {
    Row { defect, twin, checks, hangs: true }
}

/// All rows, in the order of the defects.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    [devices::ROWS, allocations::ROWS, transfers::ROWS, queues::ROWS, failures::ROWS].into_iter().flatten()
}
