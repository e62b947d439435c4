//! The variables that switch decoders off hold for those in files.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(missing_docs)]

mod host_decoder;

use std::env;
use std::process::Command;

use codec::decode;
use device_registry::device;
use device_registry::registry::Switches;

// Leaves codec-openreg out.
device_registry::autoload!(only device_openreg);

#[test]
#[ignore = "the other runs it in a process of its own"]
fn child() {
    // SAFETY: it is the decoder of this repository.
    unsafe { decoder_files::install("openreg", host_decoder::file()) }.unwrap();
    match decode(include_bytes!("../../sample.png"), device("openreg").unwrap()) {
        Ok(tensor) => println!("decoded on {}", tensor.device()),
        Err(error) => println!("not decoded: {error:?}"),
    }
}

fn child_with(variable: Option<(&str, &str)>) -> String {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "child"]);
    for variable in Switches::variables("CODEC_DEVICE_BACKEND") {
        command.env_remove(variable);
    }
    let output = command.envs(variable).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    printed
}

#[test]
fn a_decoder_in_a_file_that_is_switched_off_is_an_error_that_names_the_variable() {
    assert!(child_with(None).contains("decoded on openreg:0"));
    for (suffix, value) in [("INSTALLED", "0"), ("AUTOLOAD", "0"), ("DISABLE", "open*"), ("SELECT", "acme")] {
        let variable = format!("CODEC_DEVICE_BACKEND_{suffix}");
        let printed = child_with(Some((&variable, value)));
        assert!(printed.contains("not decoded: there is no decoder for `openreg:0`"), "{printed}");
        let file = host_decoder::file();
        let expected = format!("decoder `openreg` ({}) is disabled by {variable}={value}", file.display());
        assert!(printed.contains(&expected), "{printed}");
    }
}
