//! Decodes a picture on any device that this program's Cargo.toml brings along; see ../README.md.

use std::error::Error;
use std::fs;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use device_registry::{ErrorChain, device};

// Links every backend and every decoder in Cargo.toml; never touched again.
device_registry::autoload!();

/// Decodes a PNG picture into a tensor on a device, or lists the decoders there are.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The picture, a PNG file
    #[arg(required_unless_present = "list")]
    picture: Option<PathBuf>,
    /// The device, such as `cpu` or `NAME:INDEX`; the default device if it is left out
    // Text, and not a `Device`, so that the registry's own message is printed.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Lists the decoders that are linked, and loads none
    #[arg(long, conflicts_with_all = ["picture", "device"])]
    list: bool,
    /// Installs FILE, a shared library, as the decoder for the backend NAME; may be repeated
    #[arg(long = "decoder", value_name = "NAME=FILE", value_parser = name_and_file)]
    decoders: Vec<(String, PathBuf)>,
}

fn name_and_file(text: &str) -> Result<(String, PathBuf), &'static str> {
    match text.split_once('=') {
        Some((name, file)) if !file.is_empty() => Ok((name.to_owned(), file.into())),
        _ => Err("expected a backend and a file, such as `acme=libacme_decoder.so`"),
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", ErrorChain::new(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    // Not `println!`, which panics when the reader of a pipe has left.
    let mut out = stdout();
    for (name, file) in &arguments.decoders {
        // SAFETY: a user who names a file makes this program run it, and vouches for it as for any program.
        unsafe { codec::files::install(name, file) }?;
    }
    let Some(path) = &arguments.picture else {
        return Ok(writeln!(out, "{}", codec::decoders().report())?);
    };
    let device = arguments.device.as_deref().map(device).transpose()?;
    let bytes = fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let tensor = codec::decode(&bytes, device)?;
    writeln!(out, "shape {:?} on {}", tensor.shape(), tensor.device())?;
    Ok(writeln!(out, "{tensor}")?)
}
