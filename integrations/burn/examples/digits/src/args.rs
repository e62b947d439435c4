//! The command line.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use lexopt::prelude::*;

use crate::training::Options;

/// The text of `--help`.
pub const HELP: &str = "\
Trains a small convolutional network on 1,797 handwritten digits.

Usage: digits [OPTIONS]

Options:
  --device STRING  the device to train on [default: cpu]
  --plugins DIR    a folder with backends and kernels in files
  --epochs N       how often the network sees each training digit [default: 5]
  --seed N         for the parameters, the order of the digits and the dropout [default: 1]
  --output DIR     the folder for the results [default: target/digits]
  --trace FILE     write what the device did, such as to trace.json.gz
  --resume         continue after the last checkpoint in the folder
  --help           print this text
";

/// What the command line asks for.
#[derive(Debug)]
pub enum Command {
    /// Print [`HELP`].
    Help,
    /// Train and evaluate.
    Train {
        /// The device string.
        device: String,
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
    let (mut device, mut plugins, mut trace) = ("cpu".to_owned(), None, None);
    let mut options = Options {
        epochs: const { NonZeroUsize::new(5).unwrap() },
        seed: 1,
        output: PathBuf::from("target/digits"),
        resume: false,
    };
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("device") => device = parser.value()?.string()?,
            Long("plugins") => plugins = Some(parser.value()?.into()),
            Long("trace") => trace = Some(parser.value()?.into()),
            Long("epochs") => options.epochs = parser.value()?.parse()?,
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("output") => options.output = parser.value()?.into(),
            Long("resume") => options.resume = true,
            Long("help") | Short('h') => return Ok(Command::Help),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Command::Train { device, plugins, trace, options })
}
