//! The README names tests by the hundred, which may be renamed.

use std::fs;
use std::path::Path;

/// All sources in a folder, as one text.
fn sources(folder: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.is_file()).map(|file| fs::read_to_string(file).unwrap()).collect()
}

#[test]
fn every_test_that_the_readme_names_is_there() {
    let readme = include_str!("../README.md");
    let (_, tables) = readme.split_once("## Beside PyTorch's OpenReg").unwrap();
    let sources = sources("tests") + &sources("../device-registry/src");
    let here = tables.lines().filter_map(|line| line.split('|').nth(2));
    let quoted = here.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let tests: Vec<&str> = quoted.filter(|name| name.matches('_').count() >= 3).collect();
    assert!(tests.len() > 20, "{tests:?}");
    for test in tests {
        assert!(sources.contains(&format!("fn {test}()")), "there is no test `{test}`");
    }
}
