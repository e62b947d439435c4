//! Everything up to the moment when a library is opened: folders, manifests, and the checks of the library.

mod checked;
mod digest;
mod error;
mod examine;
mod fields;
mod files;
mod manifest;
mod places;
mod plugins;
mod report;
mod rights;
mod symbols;
#[cfg(test)]
mod testing;
mod trust;

use device_registry::backend::{Backend, LoadFailure, Options};

pub(crate) use self::checked::Checked;
pub(crate) use self::digest::show as show_digest;
pub use self::error::InstallError;
pub(crate) use self::examine::{Examined, examine, is_manifest, manifests, read_manifest};
pub(crate) use self::files::canonical;
pub use self::manifest::Manifest;
pub(crate) use self::manifest::is_name;
pub use self::plugins::Plugins;
pub use self::report::{InstallReport, Skipped};
use self::rights::Rights;
use self::trust::Trust;

/// Checks the library of a manifest, and opens it with a function.
pub(crate) fn open_checked<T>(
    manifest: &Manifest,
    any_owner: bool,
    open: impl FnOnce(Checked<'_>) -> Result<T, LoadFailure>,
) -> Result<T, LoadFailure> {
    let mut trust = Trust::new(any_owner, Rights::of_process());
    open(Checked::new(manifest, &mut trust)?)
}

/// Checks the library of a manifest, and opens its backend.
fn load_checked(
    manifest: &Manifest,
    any_owner: bool,
    options: &Options,
) -> Result<Box<dyn Backend>, LoadFailure> {
    open_checked(manifest, any_owner, |checked| {
        // SAFETY: a file in a folder that the program names is code that the program trusts, like the code
        // that is linked into it, and by its symbol it promises to keep the rules of the interface. The
        // checks rule out files of other users.
        unsafe { crate::load::open(&checked, options) }
    })
}
