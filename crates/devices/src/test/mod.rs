//! `devices test`: the conformance suite on one device.

mod report;

use std::fs;
use std::panic;
use std::process::ExitCode;
use std::sync::Arc;

use device_conformance::Suite;
use device_registry::{DeviceError, device};
use parking_lot::Mutex;

use crate::Failure;
use crate::arguments::Test;
use crate::output::Output;
use crate::test::report::{Report, TestCase};

/// Where the lines of the tests go if a report takes their place.
const NOWHERE: &str = if cfg!(windows) { "NUL" } else { "/dev/null" };

/// Also runs in each process that the suite starts, where it runs checks and reports nothing.
pub(crate) fn run(test: &Test, output: &mut Output) -> Result<ExitCode, Failure> {
    let tested = device(&test.device).map_err(|error| match error {
        DeviceError::Syntax(_) if test.device.contains([',', '*']) => Failure::Usage(format!(
            "`test` takes one device, such as `openreg:0`, or the name of a backend for all of its devices; found \
             `{}`",
            test.device
        )),
        error => error.into(),
    })?;
    end_with_the_reader();
    // A bare name is every device of the backend. What the user names has to be there.
    let suite = match tested.index() {
        None => Suite::new().backend(tested.name()),
        Some(_) => Suite::new().device(&tested.to_string()),
    };
    let cannot_write =
        |file: &std::path::Path, error| Failure::Usage(format!("cannot write {}: {error}", file.display()));
    if let Some(file) = &test.junit {
        // What is tested for minutes has to have a place, and a report of an earlier run goes.
        fs::write(file, "").map_err(|error| cannot_write(file, error))?;
    }
    let cases = Arc::new(Mutex::new(Vec::new()));
    let suite = suite.require(tested.name()).some_check().on_verdict({
        let cases = Arc::clone(&cases);
        move |name, verdict, took| {
            cases.lock().push(TestCase::new(name, verdict, took));
        }
    });
    let silent = output.is_json() && !test.harness.iter().any(|argument| argument == "--list");
    let arguments = ["devices".to_owned()].into_iter();
    let arguments = arguments.chain(
        silent.then(|| ["--format=json".to_owned(), format!("--logfile={NOWHERE}")]).into_iter().flatten(),
    );
    let code = suite.run_with(arguments.chain(test.harness.iter().cloned()));
    let report = Report::new(&test.device, std::mem::take(&mut *cases.lock()));
    if !Suite::has_started_this_process() {
        if let Some(file) = &test.junit {
            fs::write(file, report.junit()).map_err(|error| cannot_write(file, error))?;
        }
        if output.is_json() {
            output.document(&report)?;
        }
    }
    // The harness has 101 for a check that fails.
    Ok(if code == ExitCode::SUCCESS { code } else { ExitCode::FAILURE })
}

/// A closed pipe is the reader's way to end the command, and the harness panics there.
fn end_with_the_reader() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let of_harness = panic.location().is_some_and(|place| place.file().contains("libtest-mimic"));
        if of_harness && panic.payload_as_str().is_some_and(|text| text.contains("BrokenPipe")) {
            std::process::exit(0);
        }
        print(panic);
    }));
}
