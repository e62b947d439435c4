//! Prints a tensor on the device that its argument names.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::path;
use std::process::ExitCode;

use device_plugin::Plugins;
use device_registry::device;
use device_tensor::Tensor;

// Links every crate in this program's Cargo.toml, and so every backend. Once in a program, in main.rs.
device_registry::autoload!();

const USAGE: &str = "usage: tensor-app DEVICE [--plugins FOLDER]

DEVICE is `cpu`, or the `NAME` or `NAME:INDEX` of a backend. FOLDER has backends in files.";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let (text, folder) = match &arguments[..] {
        [text] => (text, None),
        [text, option, folder] if option == "--plugins" => (text, Some(folder)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match tensor_on(&text.to_string_lossy(), folder.map(|folder| &**folder)) {
        Ok(tensor) => println!("{tensor}"),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn tensor_on(text: &str, folder: Option<&OsStr>) -> Result<Tensor, Box<dyn Error>> {
    if let Some(folder) = folder {
        // Reads the manifests there. A library is opened when a device of its backend is first used.
        Plugins::new().folder(path::absolute(folder)?).install()?;
    }
    Ok(Tensor::new([1, 2, 3], device(text)?)?)
}
