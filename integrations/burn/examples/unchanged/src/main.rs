//! `unchanged --device STRING`: two programs of burn, on the device that the command line names.

mod bars;
mod xor;

use std::error::Error;
use std::process::ExitCode;

// Links the backends of Cargo.toml.
device_registry::autoload!();

fn main() -> ExitCode {
    match arguments().and_then(|name| run(&name)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", device_registry::ErrorChain::new(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str) -> Result<(), Box<dyn Error>> {
    // The only line about the device. The rest is burn.
    let device = device_burn::device(name)?;
    println!("{}", xor::run(&device)?);
    println!("{}", bars::run(&device)?);
    println!("{}", device_burn::counts(name)?);
    Ok(())
}

/// The device string of `--device`, or `cpu`.
fn arguments() -> Result<String, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok("cpu".to_owned()),
        ["--device", name] => Ok(name.to_owned()),
        _ => Err("usage: unchanged [--device STRING], such as `--device openreg:1`".into()),
    }
}
