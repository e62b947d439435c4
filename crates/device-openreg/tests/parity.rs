//! `docs/openreg-parity.md` names tests by the hundred, which may be renamed.

use std::fs;
use std::path::{Path, PathBuf};

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// All sources in a folder and in the folders below it, as one text.
fn sources(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        // Python keeps compiled files beside its sources.
        .map(|path| if path.is_dir() { sources(&path) } else { fs::read_to_string(path).unwrap_or_default() })
        .collect()
}

#[test]
fn every_test_that_the_parity_page_names_exists() {
    let page = fs::read_to_string(in_repository("docs/openreg-parity.md")).unwrap();
    let folders = [
        "crates/device-openreg/tests",
        "crates/device-registry/src",
        "crates/device-registry/tests/activity",
        "integrations/torch/tests",
    ];
    let sources = folders.map(|folder| sources(&in_repository(folder))).concat();
    let here = page.lines().filter_map(|line| line.split('|').nth(2));
    let quoted = here.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let tests: Vec<&str> = quoted.filter(|name| name.matches('_').count() >= 3).collect();
    assert!(tests.len() > 20, "{tests:?}");
    for test in tests {
        // In Rust, or in Python with its fixtures as arguments.
        let exists = sources.contains(&format!("fn {test}()")) || sources.contains(&format!("def {test}("));
        assert!(exists, "there is no test `{test}`");
    }
}
