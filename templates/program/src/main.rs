//! Prints a tensor on the device that its argument names.

use std::env;
use std::error::Error;
use std::process::ExitCode;

use device_registry::{ErrorChain, first_available};
use device_tensor::Tensor;

// Links every backend in Cargo.toml; never touched again.
device_registry::autoload!();

fn main() -> ExitCode {
    let list = env::args().nth(1).unwrap_or_else(|| "cpu".to_owned());
    match run(&list) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", ErrorChain::new(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(list: &str) -> Result<(), Box<dyn Error>> {
    let device = first_available(list)?.device;
    println!("{}", Tensor::new([1, 2, 3], device)?);
    Ok(())
}
