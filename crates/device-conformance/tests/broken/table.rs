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

/// Checks that fail, now and then or always, on a twin that does nothing wrong: by a defect of the core, which is told
/// with it.
pub(crate) const KNOWN: &[(&str, &str, &str)] = &[
    (
        "sound_lazy",
        "statistics::back_without_waiting",
        "the core does not flush a queue behind the events that it records for itself",
    ),
    (
        "sound_queued",
        "loss::a_task_that_awaits_wakes_up",
        "a read whose turn comes when the device is lost is told as dropped by the backend",
    ),
    (
        "sound_queued",
        "loss::reads_in_the_queue_are_told",
        "a read whose turn comes when the device is lost is told as dropped by the backend",
    ),
    (
        "sound_queued",
        "loss::what_is_old_stays_lost",
        "an event of a lost device is handed to the driver of the new one",
    ),
    (
        "sound_queued",
        "errors::an_awaited_read_that_fails",
        "a read that fails and is taken before its submission returns is no failure of its stream",
    ),
];
