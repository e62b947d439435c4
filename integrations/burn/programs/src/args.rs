//! The command line.

use std::ffi::OsString;
use std::num::NonZeroUsize;

use lexopt::prelude::*;

use crate::cases::{CASES, Case, Size};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cases, in the order of the command line.
    pub cases: Vec<&'static Case>,
    /// The device strings. Flex takes part always.
    pub devices: Vec<String>,
    /// How often each device has its turn.
    pub rounds: NonZeroUsize,
    /// Two threads compute beside it.
    pub loaded: bool,
    /// How much each case computes.
    pub size: Size,
    /// Print which operation ran where.
    pub counts: bool,
}

/// What the command line asks for.
#[derive(Clone, Debug)]
pub enum Command {
    /// Print [`help`].
    Help,
    /// Measure.
    Measure(Options),
}

/// The text of `--help`.
#[must_use]
pub fn help() -> String {
    let cases: String = CASES.iter().map(|case| format!("  {:12} {}\n", case.name, case.title)).collect();
    format!(
        "\
Runs training programs of burn on several devices in turns, beside burn's CPU engine Flex, and compares what
they compute.

Usage: programs [OPTIONS]

Options:
  --programs NAMES  which of the cases below, with commas [default: all]
  --devices LIST    device strings, with commas [default: cpu,openreg:1,mycpu]
  --rounds N        how often each device has its turn [default: 10]
  --loaded          two threads compute beside it
  --counts          print which operation ran where, for each case and device
  --tiny            as little as shows that it works: the times say nothing
  --help            print this text

Cases:
{cases}"
    )
}

/// Reads the arguments after the program's name.
///
/// # Errors
///
/// An argument that is not in [`help`].
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let mut options = Options {
        cases: CASES.iter().collect(),
        devices: list("cpu,openreg:1,mycpu"),
        rounds: const { NonZeroUsize::new(10).unwrap() },
        loaded: false,
        size: Size::Full,
        counts: false,
    };
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("programs") => options.cases = cases(&parser.value()?.string()?)?,
            Long("devices") => options.devices = list(&parser.value()?.string()?),
            Long("rounds") => options.rounds = parser.value()?.parse()?,
            Long("loaded") => options.loaded = true,
            Long("counts") => options.counts = true,
            Long("tiny") => options.size = Size::Tiny,
            Long("help") | Short('h') => return Ok(Command::Help),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Command::Measure(options))
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

fn cases(text: &str) -> Result<Vec<&'static Case>, lexopt::Error> {
    let case = |name: &str| {
        Case::named(name).ok_or_else(|| {
            let names: Vec<_> = CASES.iter().map(|case| case.name).collect();
            format!("there is no case `{name}`: it is one of {}", names.join(", ")).into()
        })
    };
    text.split(',').map(case).collect()
}
