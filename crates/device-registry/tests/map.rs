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
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let crates: Vec<_> = fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()).collect();
    let files: Vec<_> = crates.iter().flat_map(|of| sources(&of.join("src"))).collect();
    assert!(files.len() > 100, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        // The documentation of a crate is its README.
        let says = text.starts_with("//! ") || text.starts_with("#![");
        assert!(says, "{} does not begin with a `//!` line", file.display());
    }
}
