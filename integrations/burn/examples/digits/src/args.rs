//! The command line.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use device_registry::Device;
use lexopt::prelude::*;

use crate::training::{Options, Strategy};

/// The text of `--help`.
pub const HELP: &str = "\
Trains a small convolutional network on 1,797 handwritten digits.

Usage: digits [OPTIONS]

Options:
  --device STRING    the device to train on [default: cpu]
  --devices LIST     several devices, separated by commas, which share the work; ws://HOST:PORT stands for
                     all devices of a burn-serve
  --strategy NAME    how they share it: main, sharded or ddp [default: main]
  --token-file FILE  the token for the burn-serve
  --plugins DIR      a folder with backends and kernels in files
  --epochs N         how often the network sees each training digit [default: 5]
  --seed N           for the parameters, the order of the digits and the dropout [default: 1]
  --dropout P        the part of the features that each training step leaves out [default: 0.25]
  --output DIR       the folder for the results [default: target/digits]
  --trace FILE       write what the devices did, such as to trace.json.gz
  --resume           continue after the last checkpoint in the folder
  --help             print this text
";

/// What the command line asks for.
#[derive(Debug)]
pub enum Command {
    /// Print [`HELP`].
    Help,
    /// Train and evaluate.
    Train {
        /// The devices by name, for [`devices::open`](crate::devices::open).
        devices: Vec<String>,
        /// The file with the token for a burn-serve among them.
        token_file: Option<PathBuf>,
        /// The folder with backends in files.
        plugins: Option<PathBuf>,
        /// The file for a trace.
        trace: Option<PathBuf>,
        /// The options of the training.
        options: Options,
    },
}

/// Reads the arguments after the program's name.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let mut devices = vec!["cpu".to_owned()];
    let (mut token_file, mut plugins, mut trace) = (None, None, None);
    let mut options = Options {
        epochs: const { NonZeroUsize::new(5).unwrap() },
        seed: 1,
        dropout: 0.25,
        output: PathBuf::from("target/digits"),
        resume: false,
        strategy: Strategy::default(),
    };
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("device") => devices = vec![parser.value()?.string()?],
            Long("devices") => {
                devices = parser.value()?.string()?.split(',').map(|name| name.trim().to_owned()).collect();
                if let Some(twice) = twice(&devices) {
                    return Err(
                        format!("`{twice}` is listed twice: each device has one part of the work").into()
                    );
                }
            }
            Long("strategy") => options.strategy = parser.value()?.parse()?,
            Long("token-file") => token_file = Some(parser.value()?.into()),
            Long("plugins") => plugins = Some(parser.value()?.into()),
            Long("trace") => trace = Some(parser.value()?.into()),
            Long("epochs") => options.epochs = parser.value()?.parse()?,
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("dropout") => options.dropout = parser.value()?.parse_with(part)?,
            Long("output") => options.output = parser.value()?.into(),
            Long("resume") => options.resume = true,
            Long("help") | Short('h') => return Ok(Command::Help),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Command::Train { devices, token_file, plugins, trace, options })
}

fn part(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|part| (0.0..1.0).contains(part)).ok_or("expected a number from 0 to below 1")
}

/// A name for a device that one before it is a name for as well.
fn twice(names: &[String]) -> Option<&str> {
    // Addresses of servers are no device strings.
    let same = |a: &String, b: &String| match (Device::parse(a), Device::parse(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    };
    let mut places = (0..names.len()).rev();
    places.find(|&at| names[..at].iter().any(|name| same(name, &names[at]))).map(|at| names[at].as_str())
}
