//! Decoders in files: what is none, and one that decodes.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use codec::{decode, decoders, files};
use device_registry::registry::State;
use device_registry::{Device, device};

device_registry::autoload!(only device_openreg);

const SAMPLE: &[u8] = include_bytes!("../../sample.png");
const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// The library that `cargo test -p codec` builds of the example, though not with `--test`.
fn host_decoder() -> PathBuf {
    let program = env::current_exe().unwrap();
    let file = program.ancestors().nth(2).unwrap().join("examples/libhost_decoder.so");
    assert!(file.exists(), "{} is missing: `cargo build -p codec --examples` builds it", file.display());
    file
}

/// Compiles a library with a function that is nowhere.
fn needs_more() -> PathBuf {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libneeds_more.so");
    let compiled = Command::new("rustc")
        // With full relro the library itself demands that all its functions are found when it is opened.
        .args(["--edition=2024", "--crate-type=cdylib", "-Crelro-level=off", "-o"])
        .args([&library, &Path::new(PACKAGE).join("tests/files/needs_more.rs")])
        .status()
        .expect("rustc is there, as this was compiled by it");
    assert!(compiled.success());
    library
}

fn maps() -> String {
    fs::read_to_string("/proc/self/maps").unwrap()
}

fn install(name: &str, file: &Path) {
    // SAFETY: the libraries that open are of this repository or of the system.
    unsafe { files::install(name, file) }.unwrap();
}

/// Installs `file`, and asserts what its first use reports.
fn assert_refused(name: &str, file: &Path, cause: &str) {
    install(name, file);
    let message = format!("{:?}", decoders().load(name).err().expect("the file is no decoder"));
    assert!(message.starts_with(&format!("decoder `{name}` (")), "{message}");
    let expected = ") failed to load: expected a shared library with the function `codec_decode_v0`; CODEC_DEVICE_BACKEND_DISABLE=";
    for part in [&*file.to_string_lossy(), expected, cause] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn what_is_no_decoder_is_an_error_that_names_the_file_and_what_was_expected() {
    let maps = maps();
    let libc =
        maps.lines().find_map(|line| line.split(' ').next_back().filter(|file| file.contains("/libc.so.")));
    for (name, file, cause) in [
        ("missing", PathBuf::from("/no/such/file.so"), "No such file or directory"),
        // The loader would look for it in the system's folders, where it is.
        ("bare", PathBuf::from("libc.so.6"), "No such file or directory"),
        ("empty", PathBuf::new(), "No such file or directory"),
        ("folder", env::temp_dir(), "Is a directory"),
        ("text", Path::new(PACKAGE).join("Cargo.toml"), "invalid ELF header"),
        // So is a decoder for the next version of the interface.
        ("libc", libc.expect("it is linked").into(), "undefined symbol: codec_decode_v0"),
        ("needs_more", needs_more(), "undefined symbol: function_of_no_library"),
    ] {
        assert_refused(name, &file, cause);
    }
}

#[test]
fn the_first_picture_opens_the_file_which_gives_the_pixels_and_errors_of_the_cpu() {
    let file = host_decoder();
    let is_open = || maps().contains("libhost_decoder.so");
    install("openreg", &file);
    assert_refused("wrong", Path::new("/no/such/decoder.so"), "No such file or directory");
    let entry = decoders().get("openreg").unwrap();
    assert!(matches!(entry.state(), State::Installed) && entry.is_usable());
    let table = decoders().report().to_string();
    assert!(table.contains(&format!("installed; file: {}", file.display())), "{table}");
    let on_cpu = decode(SAMPLE, Device::cpu()).unwrap().to_vec::<u8>().unwrap();
    assert!(!is_open());

    for name in ["openreg:0", "openreg:1"] {
        let tensor = decode(SAMPLE, device(name).unwrap()).unwrap();
        assert_eq!((tensor.device().to_string().as_str(), tensor.shape()), (name, &[3, 4, 6][..]));
        assert_eq!(tensor.to_vec::<u8>().unwrap(), on_cpu);
    }
    assert!(is_open() && matches!(entry.state(), State::Loaded { .. }));

    let cut_off = &SAMPLE[..SAMPLE.len() - 1];
    let message = |device: Device| format!("{:?}", decode(cut_off, device).unwrap_err());
    assert_eq!(message(device("openreg").unwrap()), message(Device::cpu()));
}

#[test]
fn the_built_in_decoder_stays() {
    // SAFETY: it is refused, so it is never opened.
    let error = unsafe { files::install("cpu", "/no/such/file.so") }.unwrap_err().to_string();
    assert!(error.contains("cpu") && error.contains("/no/such/file.so"), "{error}");
}
