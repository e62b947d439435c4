//! A tensor on any device that this program's Cargo.toml brings along; see README.md.

use std::error::Error;
use std::io::{self, Write, stdout};
use std::process::ExitCode;

use clap::Parser;
use device_registry::{Device, ErrorChain, backends, device, device_list};
use device_tensor::Tensor;

// Links every backend in Cargo.toml; never touched again.
device_registry::autoload!();

/// Prints a tensor on a device, or lists the devices there are.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The device, such as `cpu` or `NAME:INDEX`; cpu if it is left out
    // Text, and not a `Device`, so that the registry's own message is printed.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// The elements, such as `0.5 -2`; the integers 1, 2 and 3 if they are left out
    #[arg(value_name = "NUMBER", allow_negative_numbers = true, conflicts_with = "list")]
    numbers: Vec<f64>,
    /// Lists the backends that are linked, and loads none
    #[arg(long, conflicts_with = "device")]
    list: bool,
    /// With --list: loads each backend and adds its devices
    #[arg(long, requires = "list")]
    probe: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", ErrorChain::new(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.list {
        return Ok(list(arguments.probe)?);
    }
    // For example a mistyped switch. Its warning goes to `log`, and this program has no logger.
    for note in backends().report().notes() {
        eprintln!("note: {note}");
    }
    let device = match &arguments.device {
        Some(text) => device(text)?,
        None => Device::cpu(),
    };
    let x = match &arguments.numbers[..] {
        [] => Tensor::new([1, 2, 3], device)?,
        numbers => Tensor::new(numbers, device)?,
    };
    Ok(writeln!(stdout(), "{x}")?)
}

fn list(probe: bool) -> io::Result<()> {
    // Not `println!`, which panics when the reader of a pipe has left.
    match probe {
        false => writeln!(stdout(), "{}", backends().report()),
        true => writeln!(stdout(), "{}", device_list()),
    }
}
