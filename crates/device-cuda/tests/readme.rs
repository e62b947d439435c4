//! What the README says of the tests, which change.

use std::fs;

const README: &str = include_str!("../README.md");

/// The line of the table of tests about this one.
fn row(test: &str) -> &'static str {
    let (_, tests) = README.split_once("\n## Tests\n").unwrap();
    tests.lines().find(|line| line.starts_with(&format!("| `{test}` |"))).unwrap()
}

/// The numbers in a text.
fn numbers(text: &str) -> Vec<usize> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[test]
fn every_test_is_in_the_table_and_every_check_is_counted() {
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap() {
        let file = entry.unwrap().path();
        let test = file.file_stem().unwrap().to_str().unwrap();
        if file.is_file() && test != "readme" {
            assert!(row(test).matches('|').count() == 4, "{test}");
        }
    }
    let [all, passed, unsupported] = numbers(row("simulated"))[..] else { panic!("{}", row("simulated")) };
    assert_eq!(all, device_conformance::checks().count());
    assert_eq!(all, passed + unsupported);
}
