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

use crate::abi::Table;
use crate::file::checked::Checked;
use crate::file::manifest::Manifest;
pub(crate) use crate::load::backend::LoadedBackend;
pub use crate::load::device::LoadedDevice;
use crate::load::library::Setting;
pub(crate) use crate::load::library::{Library, LibraryEntry};
pub use crate::load::report::call;
pub(crate) use crate::load::stream::LoadedQueue;
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
    let library = unsafe { open_library(checked) }?;
    Ok(Box::new(LoadedBackend::load(library, manifest.entry(), &settings(manifest, options))?))
}

/// Opens a library that has passed all checks, if it is not open, and loads an entry of another group in it,
/// which fills the table. Blocks while another thread opens the same library.
///
/// # Errors
///
/// If the library cannot be opened, does not offer what the manifest says, or its entry does not load.
///
/// # Safety
///
/// The library keeps the rules of `device_plugin.h` and of the header of the group, which declares the type
/// of the table.
pub(crate) unsafe fn open_entry<T: Table>(
    checked: &Checked<'_>,
    options: &Options,
    table: &mut T,
) -> Result<&'static Library, LoadFailure> {
    let manifest = checked.manifest;
    // SAFETY: the caller promises that the library keeps the rules.
    let library = unsafe { open_library(checked) }?;
    let settings = settings(manifest, options);
    // SAFETY: the caller promises the type of the table.
    unsafe { library.load_entry(manifest.group(), manifest.entry(), &settings, table) }?;
    Ok(library)
}

/// # Safety
///
/// The library keeps the rules of `device_plugin.h`.
unsafe fn open_library(checked: &Checked<'_>) -> Result<&'static Library, LoadFailure> {
    // SAFETY: the caller promises it.
    let library = unsafe { Library::open(&checked.path) }?;
    library.check(checked.manifest)?;
    Ok(library)
}

/// The values of the options that a manifest has.
fn settings<'a>(manifest: &Manifest, options: &'a Options) -> Vec<Setting<'a>> {
    manifest
        .options()
        .filter_map(|(name, _)| options.value(name))
        .map(|option| {
            let variable = match option.origin() {
                OptionOrigin::Variable(name) | OptionOrigin::Defaults(name) => name,
                _ => "",
            };
            (option.name(), option.as_str(), variable)
        })
        .collect()
}
