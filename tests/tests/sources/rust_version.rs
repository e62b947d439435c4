//! The oldest version of Rust is the same wherever it stands.

use std::fs;

use device_registry_tests::{files, workspace};

/// What stands before the version.
const BEFORE: [&str; 5] = ["rust-version = \"", "RUST_VERSION: \"", "TOOLCHAIN: \"", "FROM rust:", "Rust "];

/// Pages that say with which version something was measured, or which one another crate needs.
const RECORDS: [&str; 3] = ["docs/performance.md", "docs/platforms.md", "docs/decisions/foreign-memory.md"];

/// Files that are neither manifests nor pages.
const OTHERS: [&str; 4] = [
    ".github/workflows/ci.yml",
    "Containerfile",
    "integrations/onnxruntime/setup.py",
    "integrations/torch/python/device_torch/build.py",
];

/// The versions that a text names, such as `1.95`.
fn versions(text: &str) -> Vec<&str> {
    let behind = |before| text.split(before).skip(1);
    BEFORE
        .into_iter()
        .flat_map(behind)
        .filter(|text| text.starts_with("1."))
        .map(|text| &text[..2 + text[2..].find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len() - 2)])
        .collect()
}

#[test]
fn all_files_name_one_version_of_rust() {
    let others = OTHERS.map(|path| {
        let path = workspace().join(path);
        let text = fs::read_to_string(&path).expect("it is there");
        assert!(!versions(&text).is_empty(), "{}", path.display());
        (path, text)
    });
    let mut found = 0;
    for (path, text) in files("toml").into_iter().chain(files("md")).chain(others) {
        if RECORDS.iter().any(|record| path.ends_with(record)) {
            continue;
        }
        for version in versions(&text) {
            assert_eq!(version, env!("CARGO_PKG_RUST_VERSION"), "{}", path.display());
            found += 1;
        }
    }
    assert!(found > 14, "{found}");
}

#[test]
fn a_version_is_found() {
    assert_eq!(versions("rust-version = \"1.95\"\nRust 1.7, and Rust 2"), ["1.95", "1.7"]);
}
