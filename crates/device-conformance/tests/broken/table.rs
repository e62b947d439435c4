//! Which checks catch which defect, on which twin.

mod devices;
mod failures;
mod memory;
mod queues;
mod transfers;

use crate::defect::Defect;
use crate::twin::Twin;

/// A twin with a defect, and checks that do not pass on it: those that are about it, or that are failed by few others.
pub(crate) struct Row {
    pub(crate) defect: Defect,
    pub(crate) twin: &'static Twin,
    pub(crate) checks: &'static [&'static str],
    /// Whether they do not end, rather than fail.
    pub(crate) hangs: bool,
}

const fn fails(defect: Defect, twin: &'static Twin, checks: &'static [&'static str]) -> Row {
    Row { defect, twin, checks, hangs: false }
}

const fn hangs(defect: Defect, twin: &'static Twin, checks: &'static [&'static str]) -> Row {
    Row { defect, twin, checks, hangs: true }
}

/// All of them, in the order of the defects.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    [devices::ROWS, memory::ROWS, transfers::ROWS, queues::ROWS, failures::ROWS].into_iter().flatten()
}
