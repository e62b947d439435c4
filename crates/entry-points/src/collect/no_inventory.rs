//! An empty stand-in for inventory, on targets with linkme.

use crate::collect::element::Submission;

pub(crate) fn submissions() -> impl Iterator<Item = &'static Submission> {
    std::iter::empty()
}

pub(crate) const PRESENT: bool = false;

// Not public API. Submits nothing.
#[doc(hidden)]
#[macro_export]
macro_rules! __submit {
    ($($submission:tt)*) => {};
}

// Not public API. Nothing to re-export.
#[doc(hidden)]
pub(crate) mod reexport {}
