//! The program as its users run it.

#![allow(missing_docs)]

use std::process::{Command, Output};

use device_registry::registry::Switches;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sample.png");

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
    // Behind the rows is what the program's `autoload!` line links.
    assert_eq!((rows.len(), rows[4][0]), (5, "note:"), "{table}");
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

/// `--decoder=openreg=FILE`, and FILE: the library that cargo builds of the dev-dependency, beside this
/// program.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn decoder_in_a_file() -> (String, String) {
    let file = std::env::current_exe().unwrap().with_file_name("libhost_decoder.so");
    let file = file.into_os_string().into_string().unwrap();
    (format!("--decoder=openreg={file}"), file)
}

/// Leaves the name `openreg` to a file.
const WITHOUT_LINKED: (&str, &str) = ("CODEC_DEVICE_BACKEND_DISABLE", "codec-openreg/*");

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn a_decoder_in_a_file_decodes_as_a_linked_one() {
    let (option, _) = decoder_in_a_file();
    let linked = decode(&[SAMPLE, "--device", "openreg:1"], &[]);
    assert_eq!(decode(&[SAMPLE, "--device", "openreg:1", &option], &[WITHOUT_LINKED]), linked);
    assert_eq!(decode(&[SAMPLE, "--device", "openreg:1"], &[WITHOUT_LINKED]).0, Some(1));
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn a_decoder_in_a_file_is_listed_with_the_file() {
    let (option, file) = decoder_in_a_file();
    let (_, table, _) = decode(&["--list", &option, "--decoder=acme=/no/such.so"], &[WITHOUT_LINKED]);
    for row in [format!("installed; file: {file}"), "installed; file: /no/such.so".to_owned()] {
        assert!(table.contains(&row), "{table}");
    }
    let (_, table, _) = decode(&["--list", &option], &[]);
    assert!(table.contains("duplicate of codec-openreg"), "{table}");
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn decoders_in_files_can_be_switched_off() {
    let (option, file) = decoder_in_a_file();
    let off = [("CODEC_DEVICE_BACKEND_INSTALLED", "0")];
    let (_, table, _) = decode(&["--list", &option], &off);
    let state = format!("disabled by CODEC_DEVICE_BACKEND_INSTALLED=0; file: {file}");
    assert!(table.contains(&state), "{table}");
    assert_eq!(decode(&[SAMPLE, "--device", "openreg", &option], &off).0, Some(0), "the linked one stays");
}

#[test]
fn a_wrong_file_is_an_error_of_its_decoder_and_a_wrong_option_is_wrong_usage() {
    let file = concat!("--decoder=openreg=", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let (code, _, stderr) = decode(&[SAMPLE, "--device", "openreg", file], &[WITHOUT_LINKED]);
    assert_eq!(code, Some(1));
    for part in ["Cargo.toml", "expected a shared library with the function `codec_decoder_v0`"] {
        assert!(stderr.contains(part), "{stderr}");
    }
    assert_eq!(decode(&[SAMPLE, file], &[WITHOUT_LINKED]).0, Some(0), "the cpu decodes");
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
