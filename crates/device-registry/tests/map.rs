//! `docs/architecture.md` has a line for every source file of every crate.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files and folders in the first column of the map's tables, below the folder that stands above each table.
fn named() -> BTreeSet<String> {
    let page = fs::read_to_string(repository().join("docs/architecture.md")).unwrap();
    let (_, map) = page.split_once("## Module map").unwrap();
    let (mut folder, mut named) = (String::new(), BTreeSet::new());
    for line in map.lines() {
        if let Some(rest) = line.strip_prefix("In `") {
            folder = rest.trim_end_matches("`:").to_owned();
        } else if line.starts_with("###") {
            folder.clear();
        } else if let Some(cell) = line.split('|').nth(1).filter(|_| !folder.is_empty()) {
            named.extend(cell.split('`').skip(1).step_by(2).map(|name| format!("{folder}/{name}")));
        }
    }
    named
}

/// All Rust files below a folder of the repository.
fn sources(folder: &str) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(repository().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        match entry.path().is_dir() {
            true => files.extend(sources(&path)),
            false if path.ends_with(".rs") => files.push(path),
            false => {}
        }
    }
    files
}

#[test]
fn every_file_of_the_map_exists() {
    let named = named();
    assert!(named.len() > 100, "{named:?}");
    for path in named {
        assert!(repository().join(&path).exists(), "the map names {path}, which does not exist");
    }
}

#[test]
fn every_source_file_has_a_line_in_the_map() {
    let named = named();
    let has_line = |path: &String| {
        named.iter().any(|name| name == path || (name.ends_with('/') && path.starts_with(name)))
    };
    for crate_folder in fs::read_dir(repository().join("crates")).unwrap() {
        let name = crate_folder.unwrap().file_name().into_string().unwrap();
        for path in sources(&format!("crates/{name}/src")) {
            assert!(
                path.ends_with("/src/lib.rs") || has_line(&path),
                "{path} has no line in docs/architecture.md"
            );
        }
    }
}
