//! Invalid arguments.

use crate::compute;

#[test]
fn invalid_sizes_are_wrong_usage() {
    for (option, value, message) in [
        ("--size", "0", "it is to be at least 1"),
        ("--size", "3x0x3", "it is to be at least 1"),
        ("--size", "-3", "a number from 1 to 4294967295"),
        ("--size", "many", "a number from 1 to 4294967295"),
        ("--size", "3x3", "three such as 30x20x10"),
        ("--size", "65536", "at most 4294967295 elements"),
        ("--size", "1x20000000x1", "the sum of 20000000 products, and of more than 16777216"),
        ("--length", "0", "it is to be at least 1"),
        ("--length", "4294967296", "a number from 1 to 4294967295"),
        ("--length", "1e6", "a number from 1 to 4294967295"),
        ("--runs", "0", "0 is not in 1..=65535"),
        ("--runs", "65536", "65536 is not in 1..=65535"),
    ] {
        // In one word, for a number below zero looks like an option.
        let argument = format!("{option}={value}");
        let run = compute(&[&argument], &[]);
        assert_eq!((run.code, &run.stdout[..]), (Some(2), ""), "{argument}: {}", run.stderr);
        assert!(run.stderr.contains(message), "{argument}: {}", run.stderr);
    }
}

#[test]
fn the_option_list_stands_alone() {
    let run = compute(&["--list", "--device", "cpu"], &[]);
    assert_eq!((run.code, &run.stdout[..]), (Some(2), ""), "{}", run.stderr);
}

#[test]
fn a_closed_pipe_is_an_error_and_no_panic() {
    use std::io::Read;
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_compute"))
        .args(["--size", "64", "--runs", "3"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: ") && !stderr.contains("panicked"), "{stderr}");
}
