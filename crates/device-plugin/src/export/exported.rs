//! What a library exports: backends, and entries of other groups.

use std::sync::OnceLock;

use device_registry::backend::{BackendDescriptor, LoadFailure};
use device_registry::plugin::Setting;

use crate::abi::Object;

// Not public API. Used by `export!`.
#[doc(hidden)]
pub struct Exported {
    pub descriptors: &'static [&'static BackendDescriptor],
    pub entries: &'static [&'static dyn ExportedEntry],
    /// The package of the library, for a descriptor without one.
    pub package: &'static str,
    pub version: &'static str,
}

/// An entry of another group than backends, which a library exports: behind the semicolon of
/// [`export!`](crate::export).
pub trait ExportedEntry: Sync {
    /// The group, such as `acme.filters`.
    fn group(&self) -> &'static str;

    /// The name of the entry in this library.
    fn name(&self) -> &'static str;

    /// The package that it comes from, if not the library's.
    fn package(&self) -> Option<&'static str> {
        None
    }

    /// The version of the package, if not the library's.
    fn version(&self) -> Option<&'static str> {
        None
    }

    /// The names of its options, with their descriptions.
    fn options(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// Loads it with these options, and fills the table by [`put`](crate::interface::put). It may be called
    /// again after an error.
    ///
    /// # Errors
    ///
    /// If it does not load.
    ///
    /// # Safety
    ///
    /// The table is the place that the program passes to `dp_plugin.load_entry`: of the type that the header
    /// of the group declares, with its size in `struct_size`.
    unsafe fn load(&self, options: &[Setting<'_>], table: Object) -> Result<(), LoadFailure>;
}

/// What this library exports.
pub(super) static EXPORTED: OnceLock<&'static Exported> = OnceLock::new();
