//! An empty stand-in for linkme, on targets where it does not build.

use crate::collect::element::{Autoload, Declared};

pub(crate) fn autoloads() -> &'static [Autoload] {
    &[]
}

pub(crate) fn groups() -> &'static [Declared] {
    &[]
}

pub(crate) const PRESENT: bool = false;

// Not public API. An empty slice.
#[doc(hidden)]
#[macro_export]
macro_rules! __linked_slice {
    ($(#[$attribute:meta])* pub static $name:ident : [$($element:tt)*];) => {
        $(#[$attribute])*
        pub static $name: &[$($element)*] = &[];
    };
}

// Not public API. A plain static, which `entry_points!` submits to inventory.
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
