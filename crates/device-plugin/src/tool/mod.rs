//! What the command `devices plugin` does. It is here as it shares much with the loading of libraries; the
//! crate `devices` has its arguments, and nothing else calls it.

mod arguments;
mod check;
mod child;
mod compare;
mod contents;
mod describe;
mod page;
mod print;
mod process;

use std::ffi::OsString;
use std::io;

pub use crate::tool::arguments::{CHILD, Check, Manifest, Opening, name, seconds};
pub use crate::tool::check::run as check;
pub use crate::tool::print::{NoManifest, manifest};

/// Opens the library that the arguments behind [`CHILD`] name, and prints what it finds. The process has to
/// do nothing else: the command is started once more for each library.
///
/// # Errors
///
/// If the arguments are not of this command, or nothing reads what is printed.
pub fn child(arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    let no_library = || io::Error::other(format!("`{CHILD}` needs a library"));
    let (how, file) = arguments::child(arguments).ok_or_else(no_library)?;
    child::run(&file, how)
}
