//! The checks of files one by one, for the command `devices plugin`: it shows all mistakes, not only the
//! first.

use std::io::{self, Seek};
use std::path::{Path, PathBuf};

use entry_points::message::shown_path;

use crate::file::digest;
use crate::file::files::{canonical, open_regular};
use crate::file::manifest::Manifest;
use crate::file::rights::Rights;
use crate::file::symbols::{self, Expected};
use crate::file::trust::Trust;
use crate::install::plugins;

/// The results of a library's checks before it is opened.
#[derive(Debug)]
pub(crate) struct Examined {
    /// The file, as an absolute path without links.
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
    pub(crate) sha256: [u8; 32],
    /// Whether other users could have changed it.
    pub(crate) trust: Result<(), String>,
    /// Whether it is a library for this program, with a backend in it.
    pub(crate) kind: Result<(), String>,
}

/// Checks a library, without opening it.
///
/// # Errors
///
/// If there is no such file, or it cannot be read.
pub(crate) fn examine(file: &Path, any_owner: bool) -> Result<Examined, String> {
    let path = canonical(file).map_err(|error| format!("cannot open `{}`: {error}", shown_path(file)))?;
    let no_file = |error: &dyn std::fmt::Display| format!("`{}`: {error}", shown_path(&path));
    let (mut opened, metadata) = open_regular(&path).map_err(|error| no_file(&error))?;
    let sha256 = digest::of(&mut opened).map_err(|error| no_file(&error))?;
    opened.rewind().map_err(|error| no_file(&error))?;
    let trust = trust(any_owner).check_file(&path, &metadata).map_err(|error| error.to_string());
    let kind = symbols::check(opened, Expected::of_this_program())
        .map_err(|error| format!("`{}` {error}", shown_path(&path)));
    Ok(Examined { path, len: metadata.len(), sha256, trust, kind })
}

/// The manifests in a folder, sorted.
///
/// # Errors
///
/// If the folder cannot be read.
pub(crate) fn manifests(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let names = plugins::manifests(folder)?;
    Ok(names.into_iter().map(|(name, _)| folder.join(name)).collect())
}

/// Whether a file is a manifest by its name.
pub(crate) fn is_manifest(file: &Path) -> bool {
    file.file_name().is_some_and(plugins::is_manifest)
}

/// Reads a manifest as [`Plugins`](crate::Plugins) does in a program that has the group `another` too. It is
/// `None` if it is for any other group.
///
/// # Errors
///
/// The reason why `Plugins` skips it.
pub(crate) fn read_manifest(
    file: &Path,
    any_owner: bool,
    another: Option<&str>,
) -> Result<Option<Manifest>, String> {
    // Treated as a link: the caller's path may contain some.
    plugins::read_manifest(file, true, another, &mut trust(any_owner))
}

fn trust(any_owner: bool) -> Trust {
    Trust::new(any_owner, Rights::of_process())
}
