//! Prints a tensor on the device that its argument names.

use std::env;
use std::process::ExitCode;

use device_registry::device;
use device_tensor::{Tensor, TensorError};

// Links every crate in this program's Cargo.toml, and so every backend. Once in a program, in main.rs.
device_registry::autoload!();

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let [text] = &arguments[..] else {
        eprintln!("usage: tensor-app DEVICE\n\nDEVICE is `cpu`, or the `NAME` or `NAME:INDEX` of a backend");
        return ExitCode::from(2);
    };
    match tensor_on(&text.to_string_lossy()) {
        Ok(tensor) => println!("{tensor}"),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn tensor_on(text: &str) -> Result<Tensor, TensorError> {
    Tensor::new([1, 2, 3], device(text)?)
}
