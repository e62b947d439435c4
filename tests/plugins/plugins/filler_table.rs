//! The table of the group `tests.fillers`, in place of the header that a group has.

use device_plugin::interface::{Object, Report, Span, Status, Table};

/// The name of the group.
pub(crate) const FILLER_GROUP: &str = "tests.fillers";

/// What `load_entry` fills.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FillerTable {
    pub(crate) struct_size: usize,
    /// What both functions get.
    pub(crate) filler: Object,
    /// Fills a span on the device and the queue of a launch. Keeps a value with the device.
    pub(crate) fill: Option<Fill>,
    /// How many of these values were dropped.
    pub(crate) dropped: Option<Dropped>,
}

pub(crate) type Fill = unsafe extern "C" fn(
    filler: Object,
    device: Object,
    stream: Object,
    span: *const Span,
    report: *const Report,
) -> Status;
pub(crate) type Dropped = unsafe extern "C" fn(filler: Object) -> usize;

// SAFETY: it is `repr(C)` and begins with `struct_size`. The other fields are a pointer and nullable pointers
// of functions.
unsafe impl Table for FillerTable {}
