//! Each source file of each crate begins with a line that says what is in it, which `tests/map.sh` prints.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.extension() {
            _ if path.is_dir() => files.extend(sources(&path)),
            Some(extension) if extension == "rs" => files.push(path),
            _ => {}
        }
    }
    files
}

#[test]
fn every_source_file_says_what_is_in_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["crates", "kernels"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let crates: Vec<_> =
        folders.into_iter().flatten().map(|entry| entry.unwrap().path().join("src")).collect();
    let files: Vec<_> = crates.iter().filter(|of| of.is_dir()).flat_map(|of| sources(of)).collect();
    assert!(files.len() > 100, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        // The documentation of a crate is its README.
        let says = text.starts_with("//! ") || text.starts_with("#![");
        assert!(says, "{} does not begin with a `//!` line", file.display());
    }
}
