//! What the README says of tests and of hardware, which changes.

use std::fs;
use std::path::Path;

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
fn it_says_that_no_hardware_was_there_and_what_was_run() {
    let flat = README.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("**It has not been run on hardware.** As of 2026-11-21 there was no GPU"));
    assert!(flat.contains("conformance suite on a simulated driver"));
    assert!(flat.contains("Nothing has been run on hardware"));
    // Whoever has run it writes down what came of it, and then this test has to go.
    let hardware = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hardware.md");
    if let Ok(hardware) = fs::read_to_string(hardware) {
        let about = hardware.lines().filter(|line| line.to_lowercase().contains("cuda"));
        assert!(about.clone().any(|line| line.contains("not been run")), "{:?}", about.collect::<Vec<_>>());
    }
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
