//! Files that are no decoders, and decoders that fail: each is an error of its own name.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(missing_docs)]

mod host_decoder;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use codec::{decode, decoders};
use device_registry::backend::{BACKENDS, Backend, BackendDescriptor, LoadFailure};
use device_registry::device;

device_registry::autoload!(only device_openreg);

device_registry::backend::entry_points! {
    #[distributed_slice(BACKENDS)]
    static SILENT: BackendDescriptor = BackendDescriptor::new("silent", no_driver);
    #[distributed_slice(BACKENDS)]
    static STRANGE: BackendDescriptor = BackendDescriptor::new("strange", no_driver);
}

fn no_driver() -> Result<Box<dyn Backend>, LoadFailure> {
    Err(LoadFailure::unavailable("no driver"))
}

const SAMPLE: &[u8] = include_bytes!("../../sample.png");

fn install(name: &str, file: &Path) {
    // SAFETY: the libraries that open are of this test or of the system, and their tables are as long as they
    // say.
    unsafe { decoder_files::install(name, file) }.unwrap();
}

/// What the first use of the file reports, with its causes.
fn message(name: &str, file: &Path) -> String {
    install(name, file);
    format!("{:?}", decoders().load(name).err().expect("the file is no decoder"))
}

fn compile(wrong: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong_files");
    fs::create_dir_all(&folder).unwrap();
    let library = folder.join(format!("lib{wrong}.so"));
    let compiled = Command::new("rustc")
        .args(["--edition=2024", "--crate-type=cdylib", "--crate-name=wrong", "-O", "-Awarnings"])
        // Else the library itself demands that all its functions are found when it is opened.
        .arg("-Crelro-level=off")
        .args(["--cfg", &format!("wrong=\"{wrong}\""), "-o"])
        .args([&library, &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong_files/library.rs")])
        .status()
        .expect("rustc is there, as this was compiled by it");
    assert!(compiled.success(), "{wrong} does not compile");
    library
}

#[test]
fn what_is_no_decoder_is_an_error_that_names_the_file_and_what_was_expected() {
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps
        .lines()
        .find_map(|line| line.split_whitespace().last().filter(|file| file.contains("/libc.so.")));
    let cases = [
        ("missing", PathBuf::from("/no/such/file.so"), "No such file or directory"),
        // The loader would look for it in the system's folders, where it is.
        ("bare", PathBuf::from("libc.so.6"), "No such file or directory"),
        ("empty", PathBuf::new(), "No such file or directory"),
        ("folder", std::env::temp_dir(), "Is a directory"),
        ("text", text, "invalid ELF header"),
        ("libc", libc.expect("it is linked").into(), "undefined symbol: codec_decoder_v0"),
        ("next_version", compile("next_version"), "undefined symbol: codec_decoder_v0"),
        ("needs_more", compile("needs_more"), "undefined symbol: function_of_no_library"),
    ];
    for (name, file, cause) in cases {
        let message = message(name, &file);
        assert!(message.starts_with(&format!("decoder `{name}` (")), "{message}");
        assert!(message.contains(&*file.to_string_lossy()), "{message}");
        let expected = ") failed to load: expected a shared library with the function `codec_decoder_v0`; CODEC_DEVICE_BACKEND_DISABLE=";
        assert!(message.contains(expected), "{message}");
        assert!(message.contains(cause), "{message}");
    }
}

#[test]
fn a_table_of_another_version_is_an_error_with_both_sizes() {
    let cases = [
        ("null", "`codec_decoder_v0` returned a null pointer, expected a table"),
        ("short", "expected a table of 16 bytes or more from `codec_decoder_v0`, found 8"),
        ("no_function", "expected a function `decode` in the table of `codec_decoder_v0`, found none"),
    ];
    for (name, expected) in cases {
        let file = compile(name);
        let remedy = format!("CODEC_DEVICE_BACKEND_DISABLE={name} turns it off");
        let expected = format!("decoder `{name}` ({}) failed to load: {expected}; {remedy}", file.display());
        assert_eq!(message(name, &file), expected);
    }
}

#[test]
fn a_decoder_that_fails_is_an_error_with_its_last_message_if_it_has_any() {
    // `strange` has a longer table as well, and a status that this version does not have.
    for (name, expected) in [("silent", "it reported no message"), ("strange", "not UTF-8: \u{fffd}")] {
        install(name, &compile(name));
        let error = decode(SAMPLE, device(name).unwrap()).unwrap_err();
        assert_eq!(format!("{error:?}"), format!("the decoder for `{name}:0` failed\ncaused by: {expected}"));
    }
}

#[test]
fn a_wrong_file_harms_no_other_decoder() {
    assert!(message("wrong", Path::new("/no/such/file.so")).contains("No such file"));
    install("openreg", &host_decoder::file());
    decode(SAMPLE, device("openreg").unwrap()).unwrap();
    decode(SAMPLE, device("cpu").unwrap()).unwrap();
}
