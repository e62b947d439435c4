//! `devices trace`: what a trace of `device-trace` has, as text or as a page.

use std::fs;
use std::process::ExitCode;

use device_trace::{ReadError, Trace};

use crate::Failure;
use crate::arguments::TraceArguments;
use crate::output::{Output, outside};

pub(crate) fn run(arguments: &TraceArguments, output: &mut Output) -> Result<ExitCode, Failure> {
    if output.is_json() {
        return Err(Failure::Usage("`devices trace` prints no JSON: the file itself is JSON".to_owned()));
    }
    let file = arguments.file.display();
    let trace = Trace::read(&arguments.file).map_err(|error| match error {
        ReadError::Io(error) => Failure::Usage(format!("cannot read `{file}`: {error}")),
        other => Failure::Usage(format!("`{file}`: {other}")),
    })?;
    match &arguments.html {
        Some(page) => fs::write(page, trace.to_html())
            .map_err(|error| Failure::Usage(format!("cannot write `{}`: {error}", page.display())))?,
        None => {
            for line in trace.to_string().lines() {
                output.line(outside(line))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
