//! The collector linkme: linker sections.

use crate::collect::element::{Autoload, Declared};

/// Every `autoload!` line of the program. One slice serves all groups.
///
/// linkme identifies a slice by this name, and panics if two have it. With the version in it, two frameworks
/// on two versions of this crate fit into one program, if each line leaves out the crates of the other.
#[linkme::distributed_slice]
pub static ENTRY_POINTS_0_1_AUTOLOADS: [Autoload];

#[linkme::distributed_slice(ENTRY_POINTS_0_1_AUTOLOADS)]
static SENTINEL: Autoload = Autoload::SENTINEL;

pub(crate) fn autoloads() -> &'static [Autoload] {
    &ENTRY_POINTS_0_1_AUTOLOADS
}

/// Every group that `group!` declares.
#[linkme::distributed_slice]
pub static ENTRY_POINTS_0_1_GROUPS: [Declared];

pub(crate) fn groups() -> &'static [Declared] {
    &ENTRY_POINTS_0_1_GROUPS
}

pub(crate) const PRESENT: bool = true;

// Not public API. A slice that `group!` declares.
#[doc(hidden)]
#[macro_export]
macro_rules! __linked_slice {
    ($(#[$attribute:meta])* pub static $name:ident : [$($element:tt)*];) => {
        $(#[$attribute])*
        #[$crate::__private::linkme::distributed_slice]
        #[linkme(crate = $crate::__private::linkme)]
        pub static $name: [$($element)*];
    };
}

// Not public API. An element of a slice. With the crate path, the calling crate needs no dependency on
// linkme.
#[doc(hidden)]
#[macro_export]
macro_rules! __linked_static {
    (($($slice:tt)*) $($item:tt)*) => {
        #[$crate::__private::linkme::distributed_slice($($slice)*)]
        #[linkme(crate = $crate::__private::linkme)]
        $($item)*
    };
}

// Not public API. Used by generated code.
#[doc(hidden)]
pub(crate) mod reexport {
    pub use super::ENTRY_POINTS_0_1_AUTOLOADS as AUTOLOADS;
    pub use super::ENTRY_POINTS_0_1_GROUPS as GROUPS;
    pub use linkme;
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_slices_have_the_version_in_their_names() {
        let major = env!("CARGO_PKG_VERSION_MAJOR");
        let minor = env!("CARGO_PKG_VERSION_MINOR");
        for slice in ["AUTOLOADS: [Autoload]", "GROUPS: [Declared]"] {
            let name = format!("static ENTRY_POINTS_{major}_{minor}_{slice};");
            assert!(include_str!("by_linkme.rs").contains(&name), "{name}");
        }
    }
}
