//! Folders with manifests.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A folder that only this user can change, and its path without links.
pub(crate) fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    // The path as messages show it.
    let path =
        path.to_str().and_then(|path| path.strip_prefix(r"\\?\")).map_or_else(|| path.clone(), PathBuf::from);
    (folder, path)
}

/// Writes a file that others can read.
pub(crate) fn write(file: &Path, bytes: impl AsRef<[u8]>) {
    fs::write(file, bytes).unwrap();
    set_mode(file, 0o644);
}

pub(crate) fn set_mode(file: &Path, mode: u32) {
    #[cfg(unix)]
    fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    #[cfg(not(unix))]
    let _ = (file, mode);
}

/// The text of a manifest, with fields at the end that begin with a comma.
pub(crate) fn manifest(name: &str, library: &Path, more: &str) -> String {
    let library = library.display().to_string().replace('\\', "\\\\");
    format!(
        r#"{{"manifest": 1, "group": "device.backends", "name": "{name}", "package": "device-{name}", "version": "1.2.0",
            "library": "{library}", "abi": {{"major": 0, "minor": 3}}{more}}}"#
    )
}
