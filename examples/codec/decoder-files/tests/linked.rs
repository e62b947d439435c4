//! A decoder in a file beside a linked one of the same name.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(missing_docs)]

mod host_decoder;

use codec::{decode, decoders};
use device_registry::device;

device_registry::autoload!();

#[test]
fn a_linked_decoder_goes_first_and_the_file_stays_closed() {
    let file = host_decoder::file();
    // SAFETY: it is the decoder of this repository.
    unsafe { decoder_files::install("openreg", &file) }.unwrap();
    decode(include_bytes!("../../sample.png"), device("openreg").unwrap()).unwrap();
    assert_eq!(decoders().get("openreg").unwrap().package(), Some("codec-openreg"));
    let report = decoders().report();
    let row = report.rows().iter().find(|row| row.name == "openreg" && row.file == Some(&*file)).unwrap();
    let expected = format!("duplicate of codec-openreg {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(row.state.to_string(), expected);
    assert!(!std::fs::read_to_string("/proc/self/maps").unwrap().contains("libhost_decoder.so"));
}

#[test]
fn the_built_in_decoder_stays() {
    // SAFETY: it is the decoder of this repository.
    let error = unsafe { decoder_files::install("cpu", host_decoder::file()) }.unwrap_err().to_string();
    assert!(error.contains("cpu") && error.contains("libhost_decoder.so"), "{error}");
}
