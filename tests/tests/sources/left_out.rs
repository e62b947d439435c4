//! Tests that `cargo test` leaves out are run by a step of `.ci`.

use std::fs;

use device_registry_tests::{files, workspace};

/// The names of the tests in a manifest that `cargo test` leaves out.
fn left_out(manifest: &str) -> Vec<&str> {
    let tables = manifest.split("\n[").filter(|table| table.starts_with("[test]]"));
    let left_out = tables.filter(|table| table.lines().any(|line| line == "test = false"));
    left_out.filter_map(|table| table.split("name = \"").nth(1)?.split('"').next()).collect()
}

#[test]
fn each_test_that_is_left_out_has_a_step() {
    let steps = fs::read_to_string(workspace().join(".ci/steps.sh")).unwrap();
    let words: Vec<_> = steps.split([' ', '\n', '(', ')']).collect();
    let mut found = 0;
    for (manifest, text) in files("toml") {
        for name in left_out(&text) {
            let has_step = words.windows(2).any(|pair| pair == ["--test", name]);
            assert!(has_step, "{}: no step runs `{name}`", manifest.display());
            found += 1;
        }
    }
    assert!(found > 8, "{found}");
}

#[test]
fn a_test_that_is_left_out_is_found() {
    let manifest = "[[test]]\nname = \"a\"\ntest = false\n\n[[test]]\nname = \"b\"\n\n[[bin]]\nname = \"c\"\ntest = false\n";
    assert_eq!(left_out(&format!("[package]\n\n{manifest}")), ["a"]);
}
