//! The checks of a library right before it is opened.

use std::io;
use std::path::PathBuf;

use device_registry::backend::LoadFailure;
use entry_points::message::shown_path;

use crate::file::digest;
use crate::file::files::{OpenError, canonical, open_regular};
use crate::file::manifest::Manifest;
use crate::file::rights::Rights;
use crate::file::symbols::{self, Expected, NotALibrary};
use crate::file::trust::{Trust, TrustError};

/// A library that passed every check that is possible before it is opened.
///
/// Opening runs the library's constructors before any of its symbols can be looked up. So everything that the
/// file shows is checked first. Between the check and the opening, a user who may write to the
/// folder can still replace the file; the checks of owners and modes rule out other users.
#[derive(Debug)]
pub(crate) struct Checked<'a> {
    /// The manifest that names the library.
    pub(crate) manifest: &'a Manifest,
    /// The library, as an absolute path without links.
    pub(crate) path: PathBuf,
}

impl<'a> Checked<'a> {
    fn new(manifest: &'a Manifest, trust: &mut Trust) -> Result<Self, CheckError> {
        let no_library = |error| CheckError::NoLibrary {
            library: manifest.library().into(),
            manifest: manifest.file().into(),
            error,
        };
        let path = canonical(manifest.library()).map_err(no_library)?;
        let opened = open_regular(&path).map_err(|error| CheckError::Open { path: path.clone(), error });
        let (mut file, metadata) = opened?;
        trust.check_file(&path, &metadata)?;
        if let Some(expected) = manifest.sha256() {
            let read = |error: io::Error| CheckError::Open { path: path.clone(), error: error.into() };
            // This moves the position in the file, but reading the symbols does not use it.
            let found = digest::of(&mut file).map_err(read)?;
            if found != *expected {
                return Err(CheckError::Digest {
                    path,
                    found: digest::show(&found),
                    expected: digest::show(expected),
                    manifest: manifest.file().into(),
                });
            }
        }
        symbols::check(file, Expected::of_this_program())
            .map_err(|error| CheckError::NotALibrary { path: path.clone(), error })?;
        Ok(Self { manifest, path })
    }
}

/// Checks the library of a manifest, and opens it with a function.
pub(crate) fn open_checked<T>(
    manifest: &Manifest,
    any_owner: bool,
    open: impl FnOnce(Checked<'_>) -> Result<T, LoadFailure>,
) -> Result<T, LoadFailure> {
    let mut trust = Trust::new(any_owner, Rights::of_process());
    open(Checked::new(manifest, &mut trust)?)
}

/// Why a library is not opened.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error(
        "cannot open `{}`, which the manifest `{}` names: {error}",
        shown_path(library),
        shown_path(manifest)
    )]
    NoLibrary { library: PathBuf, manifest: PathBuf, error: io::Error },
    #[error("`{}`: {error}", shown_path(path))]
    Open { path: PathBuf, error: OpenError },
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(
        "`{}` is not the file that its manifest describes: its SHA-256 is {found}, and `{}` has {expected}; it was \
         replaced or copied in part, so install the two again together",
        shown_path(path),
        shown_path(manifest)
    )]
    Digest { path: PathBuf, found: String, expected: String, manifest: PathBuf },
    #[error("`{}` {error}", shown_path(path))]
    NotALibrary { path: PathBuf, error: NotALibrary },
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::file::testing::{Folder, manifest, sound_library};
    use crate::group::IN_FILES;

    fn manifest_of(folder: &Folder, changes: Value) -> Manifest {
        let file = folder.path.join("acme.plugin.json");
        Manifest::parse(manifest(changes).as_bytes(), &file, &IN_FILES, None).unwrap().unwrap()
    }

    fn check(manifest: &Manifest) -> Result<PathBuf, String> {
        let mut trust = Trust::new(false, Rights::of_process());
        Checked::new(manifest, &mut trust).map(|checked| checked.path).map_err(|error| error.to_string())
    }

    #[test]
    fn a_sound_library_is_found_by_its_path_without_links() {
        let folder = Folder::new();
        folder.create_folder("inner");
        let library = folder.write("libacme.so", sound_library());
        let digest = "sha256";
        let right = digest::show(&digest::of(&mut std::fs::File::open(&library).unwrap()).unwrap());
        assert_eq!(
            check(&manifest_of(&folder, json!({"library": "inner/../libacme.so", digest: right}))),
            Ok(library)
        );
    }

    #[test]
    fn a_missing_library_is_named_with_its_manifest() {
        let folder = Folder::new();
        let manifest = manifest_of(&folder, json!({}));
        let library = manifest.library().display();
        let file = manifest.file().display();
        let error = check(&manifest).unwrap_err();
        assert!(
            error.starts_with(&format!("cannot open `{library}`, which the manifest `{file}` names: ")),
            "{error}"
        );
    }

    #[test]
    fn a_library_with_another_digest_is_refused_with_both() {
        let folder = Folder::new();
        let library = folder.write("libacme.so", "abc");
        let manifest = manifest_of(&folder, json!({"sha256": "00".repeat(32)}));
        // The first example of FIPS 180-2.
        let found = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let message = format!(
            "`{}` is not the file that its manifest describes: its SHA-256 is {found}, and `{}` has {}; it was replaced or \
             copied in part, so install the two again together",
            library.display(),
            manifest.file().display(),
            "00".repeat(32)
        );
        assert_eq!(check(&manifest), Err(message));
    }

    #[test]
    fn what_is_no_library_is_refused_with_its_path() {
        let folder = Folder::new();
        let path = folder.create_folder("libacme.so");
        let manifest = manifest_of(&folder, json!({}));
        let expected = format!("`{}`: expected a regular file, found a folder", path.display());
        assert_eq!(check(&manifest), Err(expected));
        std::fs::remove_dir(&path).unwrap();
        folder.write("libacme.so", "INPUT(-lacme)");
        let error = check(&manifest).unwrap_err();
        assert!(
            error.starts_with(&format!("`{}` is a text that begins with `INPUT", path.display())),
            "{error}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_library_that_others_can_write_to_is_refused_before_it_is_read() {
        let folder = Folder::new();
        let library = folder.write("libacme.so", "no library");
        crate::file::testing::set_mode(&library, 0o666);
        let error = check(&manifest_of(&folder, json!({}))).unwrap_err();
        assert!(
            error.starts_with(&format!("`{}` can be written to by others (mode 666)", library.display()))
        );
    }
}
