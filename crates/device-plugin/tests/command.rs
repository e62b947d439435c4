//! The command `device-plugin` is a program of this package, and says how to use it.
#![cfg(feature = "load")]

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_device-plugin"));
    let Output { status, stdout, stderr } = command.args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn wrong_usage_has_an_exit_code_of_its_own() {
    let (code, output, errors) = run(&["print"]);
    assert_eq!((code, &*output), (Some(2), ""));
    assert!(errors.starts_with("device-plugin: expected `check` or `manifest`, found `print`\n"), "{errors}");
    assert!(errors.contains("\nusage: device-plugin check "), "{errors}");
    let (code, output, errors) = run(&["--help"]);
    assert!(code == Some(0) && output.starts_with("usage: ") && errors.is_empty(), "{output}{errors}");
    let version = format!("device-plugin {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(&["--version"]), (Some(0), version, String::new()));
}

#[test]
fn a_file_that_does_not_exist_is_a_problem() {
    let file = std::env::temp_dir().join("no such folder").join("libacme.so");
    let file = file.to_str().unwrap();
    let (code, output, errors) = run(&["check", file]);
    assert!(code == Some(1) && output.ends_with("\n1 problem\n") && errors.is_empty(), "{output}{errors}");
    let (code, output, errors) = run(&["manifest", file]);
    assert!(code == Some(1) && errors.starts_with("device-plugin: cannot open `"), "{output}{errors}");
}
