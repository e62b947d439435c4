//! The side of the program: opens a library, and makes a backend of what it offers.

mod backend;
mod bytes;
mod device;
mod event;
mod host;
mod library;
mod numbered;
mod report;
mod stream;
mod tables;

use device_registry::backend::{Backend, LoadFailure, Options};
use device_registry::registry::OptionOrigin;

use crate::install::Checked;
pub(crate) use crate::load::backend::LoadedBackend;
pub use crate::load::device::LoadedDevice;
pub(crate) use crate::load::library::{Library, LibraryEntry};
#[cfg(test)]
pub(crate) use crate::load::tables::REQUIRED;

/// Opens a library that has passed all checks, if it is not open, and loads the backend in it. Blocks while
/// another thread opens the same library.
///
/// # Errors
///
/// If the library cannot be opened, does not offer what the manifest says, or its backend does not load.
///
/// # Safety
///
/// The library keeps the rules of `device_plugin.h`.
pub(crate) unsafe fn open(checked: &Checked<'_>, options: &Options) -> Result<Box<dyn Backend>, LoadFailure> {
    let manifest = checked.manifest;
    // SAFETY: the caller promises that the library keeps the rules.
    let library = unsafe { Library::open(&checked.path) }?;
    library.check(manifest)?;
    let options: Vec<_> = manifest
        .options()
        .filter_map(|(name, _)| options.value(name))
        .map(|option| {
            let variable = match option.origin() {
                OptionOrigin::Variable(name) => name,
                _ => "",
            };
            (option.name(), option.as_str(), variable)
        })
        .collect();
    Ok(Box::new(LoadedBackend::load(library, manifest.entry(), &options)?))
}
