//! The collector inventory: constructors that run before `main`.

use crate::collect::element::{Autoload, Submission};

inventory::collect!(Submission);

inventory::submit! { Submission::Autoload(&Autoload::SENTINEL) }

pub(crate) fn submissions() -> impl Iterator<Item = &'static Submission> {
    inventory::iter::<Submission>.into_iter()
}

pub(crate) const PRESENT: bool = true;

// Not public API. Submits an element to inventory.
#[doc(hidden)]
#[macro_export]
macro_rules! __submit {
    ($($submission:tt)*) => {
        $crate::__private::inventory::submit! { $($submission)* }
    };
}

// Not public API. Used by generated code.
#[doc(hidden)]
pub(crate) mod reexport {
    pub use inventory;
}
