//! The program as its users run it.

#![allow(missing_docs)]

use std::process::{Command, Output};

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sample.png");

fn decode(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_decode"));
    for prefix in ["DEVICE_BACKEND", "CODEC_DEVICE_BACKEND"] {
        for suffix in ["AUTOLOAD", "DISABLE", "SELECT", "OPTIONS"] {
            command.env_remove(format!("{prefix}_{suffix}"));
        }
    }
    let Output { status, stdout, stderr } =
        command.args(arguments).envs(variables.iter().copied()).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Left to right 40 a step, downwards 60, and both by 10: red, green and blue of the sample.
const ELEMENTS: &str = "\
tensor([[[  0,  40,  80, 120, 160, 200],
         [  0,  40,  80, 120, 160, 200],
         [  0,  40,  80, 120, 160, 200],
         [  0,  40,  80, 120, 160, 200]],

        [[  0,   0,   0,   0,   0,   0],
         [ 60,  60,  60,  60,  60,  60],
         [120, 120, 120, 120, 120, 120],
         [180, 180, 180, 180, 180, 180]],

        [[  0,  10,  20,  30,  40,  50],
         [ 10,  20,  30,  40,  50,  60],
         [ 20,  30,  40,  50,  60,  70],
         [ 30,  40,  50,  60,  70,  80]]]";

#[test]
fn no_source_line_names_a_backend_or_a_decoder() {
    assert!(!include_str!("../src/main.rs").contains("openreg"));
}

#[test]
fn without_a_device_it_decodes_on_the_cpu_whatever_is_linked() {
    let expected = format!("shape [3, 4, 6] on cpu\n{ELEMENTS}, dtype=u8)\n");
    assert_eq!(decode(&[SAMPLE], &[]), (Some(0), expected, String::new()));
}

#[test]
fn it_decodes_on_the_device_that_is_named() {
    for (name, device) in [("openreg", "openreg:0"), ("openreg:1", "openreg:1"), ("cpu", "cpu")] {
        let suffix = if name == "cpu" { String::new() } else { format!(" device='{device}',") };
        let expected = format!("shape [3, 4, 6] on {device}\n{ELEMENTS},{suffix} dtype=u8)\n");
        assert_eq!(decode(&[SAMPLE, "--device", name], &[]), (Some(0), expected, String::new()));
    }
}

#[test]
fn decoders_are_listed_and_none_is_loaded() {
    let (code, table, _) = decode(&["--list"], &[]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(code, Some(0));
    assert_eq!(rows[2], ["cpu", "codec", version, "built", "in"], "{table}");
    assert_eq!(rows[3], ["openreg", "codec-openreg", version, "linked"], "{table}");
    assert_eq!(rows.len(), 4, "{table}");
}

#[test]
fn a_decoder_that_is_switched_off_is_an_error_that_names_the_variable() {
    for (variable, value) in
        [("CODEC_DEVICE_BACKEND_AUTOLOAD", "0"), ("CODEC_DEVICE_BACKEND_DISABLE", "openreg")]
    {
        let (code, stdout, stderr) = decode(&[SAMPLE, "--device", "openreg"], &[(variable, value)]);
        assert_eq!((code, &stdout[..]), (Some(1), ""), "{stderr}");
        let expected = format!(
            "error: there is no decoder for `openreg:0`; decode on `cpu`, and move the tensor with `.to(device)`\n\
             caused by: decoder `openreg` (codec-openreg {}) is disabled by {variable}={value}\n",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(stderr, expected);
        assert_eq!(decode(&[SAMPLE], &[(variable, value)]).0, Some(0));
    }
}

#[test]
fn a_backend_that_is_switched_off_is_the_registrys_error() {
    let (code, _, stderr) =
        decode(&[SAMPLE, "--device", "openreg"], &[("DEVICE_BACKEND_DISABLE", "openreg")]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("error: backend `openreg` (device-openreg"), "{stderr}");
    assert!(stderr.contains("is disabled by DEVICE_BACKEND_DISABLE=openreg"), "{stderr}");
}

#[test]
fn files_that_are_no_picture_or_not_there_are_errors() {
    let (code, _, stderr) = decode(&[concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")], &[]);
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: expected a PNG picture"), "{stderr}");
    let (code, _, stderr) = decode(&["no-such-file.png"], &[]);
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: cannot read no-such-file.png: "), "{stderr}");
    assert_eq!(decode(&[], &[]).0, Some(2), "no arguments are wrong usage");
}
