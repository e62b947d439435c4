//! The files of this repository, for tests that read them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::project::workspace;

/// All files of this repository with this extension, and their texts, but for those of build folders.
///
/// # Panics
///
/// If a file cannot be read, and if there are few: then the folder is another one.
#[must_use]
pub fn files(extension: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    walk(workspace(), extension, &mut files);
    assert!(files.len() > 50, "{} files", files.len());
    files
}

fn walk(folder: &Path, extension: &str, files: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_symlink() {
            // To a file that is here too, or to one elsewhere.
        } else if path.is_dir() {
            let is_built = path.join("CACHEDIR.TAG").exists() || name == "target";
            if !is_built && (!name.starts_with('.') || name == ".github") {
                walk(&path, extension, files);
            }
        } else if path.extension().is_some_and(|of| of == extension) {
            let text = fs::read_to_string(&path);
            let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            files.push((path, text));
        }
    }
}
