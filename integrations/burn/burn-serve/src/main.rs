//! Serves registered devices to burn programs on other machines, by burn's own remote protocol; see
//! README.md.

mod arguments;
mod list;
mod listen;
mod serve;
mod served;
mod token;

use std::error::Error;
use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use device_kernels::{Kernels, LinkedSet};
use device_registry::{Device, ErrorChain, backends, device};
use tracing_subscriber::EnvFilter;

use crate::arguments::Arguments;

// Links every backend in Cargo.toml; never touched again.
device_registry::autoload!();

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.token_file {
        None => list::print(arguments.probe).map_err(Into::into),
        Some(token_file) => serve(&arguments, token_file),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", ErrorChain::new(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Serves until Ctrl-C or SIGTERM.
fn serve(arguments: &Arguments, token_file: &Path) -> Result<(), Box<dyn Error>> {
    // For example a mistyped switch. Its warning is logged before the logger below exists.
    for note in backends().report().notes() {
        eprintln!("note: {note}");
    }
    log_to_stderr();
    let token = token::read(token_file)?;
    let devices = devices(&arguments.devices)?;
    let listener = listen::bind(arguments.listen, arguments.allow_network)?;
    announce(listener.local_addr()?, &devices)?;
    for device in &devices {
        served::report(format_args!("{device}: {}", who_computes(*device)));
    }
    let outcome = serve::run(listener, &devices, &token);
    served::report(format_args!("{}", served::counts(&devices).trim_end()));
    Ok(outcome?)
}

/// What computes for clients on a device. Opens nothing.
fn who_computes(device: Device) -> String {
    let names = |sets: &[LinkedSet]| sets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match Kernels::of(device) {
        Ok(kernels) if kernels.sets().is_empty() => {
            "no kernels are linked, so burn's CPU engine computes".to_owned()
        }
        Ok(kernels) => format!("kernels of {}; burn's CPU engine does the rest", names(kernels.sets())),
        Err(error) => format!("{}; burn's CPU engine computes", ErrorChain::new(&error)),
    }
}

/// The devices that the command line names, each with its index. Loads their backends, and opens no device.
fn devices(names: &[String]) -> Result<Vec<Device>, Box<dyn Error>> {
    let mut devices = Vec::with_capacity(names.len());
    for name in names {
        let device = device(name)?.resolve();
        // Whether it exists: a client would see a closed connection instead of this error.
        device.properties()?;
        devices.push(device);
    }
    Ok(devices)
}

/// The one line on standard output, for people and for programs that start this one.
fn announce(address: SocketAddr, devices: &[Device]) -> io::Result<()> {
    // A space after the address, so that it can be copied by a double click.
    let mut line = format!("listening on ws://{address} with");
    for (index, device) in devices.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        line += &format!("{comma} {index} = {device}");
    }
    let mut out = stdout();
    writeln!(out, "{line}")?;
    out.flush()
}

/// What burn's server logs, on standard error; it would log to standard output itself. `RUST_LOG` selects the
/// records.
fn log_to_stderr() {
    // Without the warning that each client causes at its end, as burn's client does not close its session.
    let default = || EnvFilter::new("warn,burn_remote::transport::websocket::server=error");
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| default());
    let logger = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(stderr().is_terminal());
    // An error means that there is a logger already.
    let _ = logger.with_writer(stderr).try_init();
}
