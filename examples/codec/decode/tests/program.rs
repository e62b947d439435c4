//! The program as its users run it.

#![allow(missing_docs)]

use std::process::{Command, Output};

use device_registry::registry::Switches;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sample.png");
const ON_OPENREG: [&str; 3] = [SAMPLE, "--device", "openreg"];
/// A file that is neither a picture nor a decoder.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The program's exit code, and what it prints to its two outputs.
fn decode(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_decode"));
    for prefix in ["DEVICE_BACKEND", "CODEC_DEVICE_BACKEND"] {
        for variable in Switches::variables(prefix) {
            command.env_remove(variable);
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
fn it_decodes_on_the_device_that_is_named_and_else_on_the_cpu_whatever_is_linked() {
    for (arguments, device, suffix) in [
        (&[SAMPLE][..], "cpu", ""),
        (&[SAMPLE, "--device", "cpu"], "cpu", ""),
        (&ON_OPENREG, "openreg:0", " device='openreg:0',"),
        (&[SAMPLE, "--device", "openreg:1"], "openreg:1", " device='openreg:1',"),
    ] {
        let expected = format!("shape [3, 4, 6] on {device}\n{ELEMENTS},{suffix} dtype=u8)\n");
        assert_eq!(decode(arguments, &[]), (Some(0), expected, String::new()));
    }
}

#[test]
fn decoders_are_listed_and_none_is_loaded() {
    let (code, table, _) = decode(&["--list"], &[]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(code, Some(0));
    assert_eq!(rows[2], ["cpu", "codec", VERSION, "built", "in"], "{table}");
    assert_eq!(rows[3], ["openreg", "codec-openreg", VERSION, "linked"], "{table}");
    // Behind the rows is what the program's `autoload!` line links.
    assert_eq!((rows.len(), rows[4][0]), (5, "note:"), "{table}");
}

/// Switches that disable `openreg`, and what is behind the setting in the message.
const OFF: [(&str, &str, &str); 4] = [
    ("AUTOLOAD", "0", ""),
    ("DISABLE", "openreg", ""),
    ("DISABLE", "open*", ""),
    ("SELECT", "acme", ", which does not match it"),
];

#[test]
fn a_decoder_that_is_switched_off_is_an_error_that_names_the_variable_and_leaves_the_device_alone() {
    for (suffix, value, more) in OFF {
        let variable = format!("CODEC_DEVICE_BACKEND_{suffix}");
        let off = [(&*variable, value)];
        let expected = format!(
            "error: there is no decoder for `openreg:0`; decode on `cpu`, and move the tensor with `.to(device)`\n\
             caused by: decoder `openreg` (codec-openreg {VERSION}) is disabled by {variable}={value}{more}\n"
        );
        assert_eq!(decode(&ON_OPENREG, &off), (Some(1), String::new(), expected));
        assert_eq!(decode(&[SAMPLE], &off).0, Some(0));
    }
}

#[test]
fn a_backend_that_is_switched_off_is_the_registrys_error() {
    for (suffix, value, more) in OFF {
        let variable = format!("DEVICE_BACKEND_{suffix}");
        let (code, _, stderr) = decode(&ON_OPENREG, &[(&variable, value)]);
        assert_eq!(code, Some(1));
        let expected = format!(
            "error: backend `openreg` (device-openreg {VERSION}) is disabled by {variable}={value}{more}"
        );
        assert!(stderr.starts_with(&expected), "{stderr}");
    }
}

#[test]
fn files_that_are_no_picture_or_not_there_are_errors() {
    let (code, _, stderr) = decode(&[FILE], &[]);
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: expected a PNG picture"), "{stderr}");
    let (code, _, stderr) = decode(&["no-such-file.png"], &[]);
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: cannot read no-such-file.png: "), "{stderr}");
    assert_eq!(decode(&[], &[]).0, Some(2), "no arguments are wrong usage");
}

/// Installs a file that is no decoder: a program that succeeds has not opened it.
const IN_A_FILE: &str = concat!("--decoder=openreg=", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
const ON_OPENREG_IN_A_FILE: [&str; 4] = [SAMPLE, "--device", "openreg", IN_A_FILE];
/// Leaves the name `openreg` to the file.
const WITHOUT_LINKED: (&str, &str) = ("CODEC_DEVICE_BACKEND_DISABLE", "codec-openreg/*");

#[test]
fn a_decoder_in_a_file_is_opened_by_its_first_use_and_a_wrong_file_is_its_error_alone() {
    let (code, table, _) = decode(&["--list", IN_A_FILE], &[WITHOUT_LINKED]);
    assert_eq!(code, Some(0));
    assert!(table.contains(&format!("installed; file: {FILE}")), "{table}");
    assert_eq!(decode(&[SAMPLE, IN_A_FILE], &[WITHOUT_LINKED]).0, Some(0), "the cpu decodes");
    let (code, _, stderr) = decode(&ON_OPENREG_IN_A_FILE, &[WITHOUT_LINKED]);
    assert_eq!(code, Some(1));
    for part in [FILE, "expected a shared library with the function `codec_decode_v0`"] {
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn a_linked_decoder_goes_before_one_in_a_file() {
    let (_, table, _) = decode(&["--list", IN_A_FILE], &[]);
    assert!(table.contains(&format!("duplicate of codec-openreg {VERSION}; file: {FILE}")), "{table}");
    assert_eq!(decode(&ON_OPENREG_IN_A_FILE, &[]).0, Some(0));
}

#[test]
fn decoders_in_files_can_be_switched_off() {
    let installed = ("INSTALLED", "0", "");
    for (suffix, value, more) in OFF.into_iter().chain([installed]) {
        let variable = format!("CODEC_DEVICE_BACKEND_{suffix}");
        let (_, table, _) = decode(&["--list", IN_A_FILE], &[(&variable, value)]);
        let expected = format!("disabled by {variable}={value}{more}; file: {FILE}");
        assert!(table.contains(&expected), "{table}");
    }
    let off = [("CODEC_DEVICE_BACKEND_INSTALLED", "0"), WITHOUT_LINKED];
    assert_eq!(decode(&ON_OPENREG_IN_A_FILE, &off[..1]).0, Some(0), "the linked one stays");
    assert!(decode(&ON_OPENREG_IN_A_FILE, &off).2.starts_with("error: there is no decoder"));
}

#[test]
fn a_wrong_option_is_wrong_usage_and_a_wrong_name_is_an_error() {
    for wrong in ["openreg", "openreg="] {
        let (code, _, stderr) = decode(&[SAMPLE, "--decoder", wrong], &[]);
        assert_eq!(code, Some(2));
        assert!(stderr.contains("expected a backend and a file, such as `acme="), "{stderr}");
    }
    let (code, _, stderr) = decode(&[SAMPLE, "--decoder", "Open-Reg=x.so"], &[]);
    assert_eq!(code, Some(1));
    let file = std::path::absolute("x.so").unwrap();
    assert!(stderr.contains(&format!("cannot install `Open-Reg` from {}", file.display())), "{stderr}");
}
