//! What the README says of the tests, which change.

const README: &str = include_str!("../README.md");

#[test]
fn every_check_is_counted() {
    let (_, tests) = README.split_once("\n## Tests\n").unwrap();
    let (_, counts) = tests.split_once("simulated driver: of ").unwrap();
    let (counts, _) = counts.split_once(" on each of two devices").unwrap();
    let numbers = counts.split_whitespace().filter_map(|word| word.parse().ok());
    let [all, passed, unsupported] = numbers.collect::<Vec<usize>>()[..] else { panic!("{counts}") };
    assert_eq!(all, device_conformance::checks().count());
    assert_eq!(all, passed + unsupported);
}
