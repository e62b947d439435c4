//! `devices trace` and `devices memory`: what a trace of `device-trace` has, as text or as a page.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use device_trace::{ReadError, Trace};

use crate::Failure;
use crate::arguments::{MemoryArguments, TraceArguments};
use crate::output::{self, Output, outside};

pub(crate) fn run(arguments: &TraceArguments, output: &mut Output) -> Result<ExitCode, Failure> {
    let trace = read(&arguments.file)?;
    match &arguments.html {
        Some(page) => {
            if output::is_same(page, &arguments.file) {
                return Err(Failure::Usage(format!("`{}` is the trace itself", page.display())));
            }
            fs::write(page, trace.to_html())
                .map_err(|error| Failure::Usage(format!("cannot write `{}`: {error}", page.display())))?;
            output.line(outside(format_args!("wrote {}", page.display())))?;
        }
        None => print(&trace.to_string(), output)?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn memory(arguments: &MemoryArguments, output: &mut Output) -> Result<ExitCode, Failure> {
    print(&read(&arguments.file)?.memory().to_string(), output)?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Trace, Failure> {
    let file = path.display();
    Trace::read(path).map_err(|error| match error {
        ReadError::Io(error) => Failure::Usage(format!("cannot read `{file}`: {error}")),
        other => Failure::Usage(format!("`{file}`: {other}")),
    })
}

fn print(text: &str, output: &mut Output) -> Result<(), Failure> {
    for line in text.lines() {
        output.line(outside(line))?;
    }
    Ok(())
}
