//! Prints a tensor on the first available of the devices that its argument names.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use device_registry::{ErrorChain, device, device_list, first_available};
use device_tensor::{Tensor, TensorError};
use lexopt::ValueExt;

// Links every backend in Cargo.toml; never touched again.
device_registry::autoload!();

const USAGE: &str = "usage: remote-memory [--repeat] DEVICE[,DEVICE...]
       remote-memory --list

DEVICE is `cpu`, `netmem`, `netmem:INDEX` or `netmem@uuid=PREFIX`. With --repeat, it prints one each second.";

fn main() -> ExitCode {
    let (devices, repeat) = match arguments() {
        Ok((Some(devices), repeat)) => (devices, repeat),
        Ok((None, _)) => {
            println!("{}", device_list());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    loop {
        let outcome = print_tensor(&devices);
        if !repeat {
            return outcome;
        }
        reset_lost(&devices);
        thread::sleep(Duration::from_secs(1));
    }
}

/// The devices, or `None` for a list of all, and whether to repeat.
fn arguments() -> Result<(Option<String>, bool), lexopt::Error> {
    let mut parser = lexopt::Parser::from_env();
    let (mut devices, mut list, mut repeat) = (None, false, false);
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("list") => list = true,
            lexopt::Arg::Long("repeat") => repeat = true,
            lexopt::Arg::Value(text) if devices.is_none() => devices = Some(text.string()?),
            _ => return Err(argument.unexpected()),
        }
    }
    if devices.is_some() == list { Err("expected devices, or --list".into()) } else { Ok((devices, repeat)) }
}

fn print_tensor(devices: &str) -> ExitCode {
    match tensor_on(devices) {
        Ok(tensor) => {
            println!("{tensor}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {}", ErrorChain::new(&error));
            ExitCode::FAILURE
        }
    }
}

fn tensor_on(devices: &str) -> Result<Tensor, TensorError> {
    let found = first_available(devices)?;
    for (_, cause) in &found.passed_over {
        eprintln!("{}", ErrorChain::new(cause));
    }
    Tensor::new([1, 2, 3], found.device)
}

/// Lets the program use lost devices again. Until then they stay lost, even if their servers are back.
fn reset_lost(devices: &str) {
    for device in devices.split(',').filter_map(|text| device(text).ok()).filter(|device| device.is_lost()) {
        match device.reset() {
            Ok(()) => eprintln!("`{device}` was lost, and may be used again"),
            Err(error) => eprintln!("{}", ErrorChain::new(&error)),
        }
    }
}
