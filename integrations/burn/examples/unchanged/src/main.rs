//! `unchanged --device STRING`: two programs of burn, on the device that the command line names.

mod bars;
mod xor;

use std::error::Error;
use std::process::ExitCode;

use device_plugin::Plugins;

// Links the backends of Cargo.toml.
device_registry::autoload!();

fn main() -> ExitCode {
    match arguments().and_then(|(name, plugins)| run(&name, plugins.as_deref())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", device_registry::ErrorChain::new(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, plugins: Option<&str>) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = plugins {
        println!("{}", Plugins::new().folder(std::path::absolute(folder)?).install()?);
    }
    // The only line about the device. The rest is burn.
    let device = device_burn::device(name)?;
    println!("{}", xor::run(&device)?);
    println!("{}", bars::run(&device)?);
    println!("{}", device_burn::counts(name)?);
    Ok(())
}

/// The device string of `--device`, or `cpu`, and the folder of `--plugins`.
fn arguments() -> Result<(String, Option<String>), Box<dyn Error>> {
    let (mut device, mut plugins) = ("cpu".to_owned(), None);
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        match (&*option, arguments.next()) {
            ("--device", Some(name)) => device = name,
            ("--plugins", Some(folder)) => plugins = Some(folder),
            _ => {
                let usage =
                    "usage: unchanged [--device STRING] [--plugins FOLDER], such as `--device openreg:1`";
                return Err(usage.into());
            }
        }
    }
    Ok((device, plugins))
}
