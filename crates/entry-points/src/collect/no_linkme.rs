//! Standing in for linkme where it does not build.

use crate::collect::Autoload;

pub(crate) fn autoloads() -> &'static [Autoload] {
    &[]
}

pub(crate) const PRESENT: bool = false;

// Not public API. See the other `__linked_slice`.
#[doc(hidden)]
#[macro_export]
macro_rules! __linked_slice {
    ($(#[$attribute:meta])* pub static $name:ident : [$($element:tt)*];) => {
        $(#[$attribute])*
        pub static $name: &[$($element)*] = &[];
    };
}

// Not public API. See the other `__linked_static`.
#[doc(hidden)]
#[macro_export]
macro_rules! __linked_static {
    (($($slice:tt)*) $($item:tt)*) => {
        $($item)*
    };
}

// Not public API. Nothing to re-export.
#[doc(hidden)]
pub(crate) mod reexport {}
