//! `devices completions` and `devices man`: texts for shells and manuals, made of the arguments.

use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::Failure;
use crate::arguments::Arguments;

pub(crate) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    generate(shell, &mut Arguments::command(), name(), &mut text);
    print(&text)
}

/// One page with all commands.
pub(crate) fn manual() -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    let mut definition = Arguments::command().display_name(name()).disable_help_subcommand(true);
    definition.build();
    Man::new(definition.clone()).render(&mut text)?;
    for command in definition.get_subcommands() {
        Man::new(command.clone()).render(&mut text)?;
    }
    print(&text)
}

/// The name by which the user has started the command, which a program of its own may have changed.
fn name() -> String {
    let program = env::args_os().next().unwrap_or_default();
    let name = Path::new(&program).file_stem().and_then(|name| name.to_str());
    name.unwrap_or("devices").to_owned()
}

fn print(text: &[u8]) -> Result<ExitCode, Failure> {
    io::stdout().write_all(text)?;
    Ok(ExitCode::SUCCESS)
}
