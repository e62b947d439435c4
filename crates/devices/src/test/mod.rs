//! `devices test`: the conformance suite on one device.

mod report;

use std::fs;
use std::panic;
use std::path::Path;
use std::process::{self, ExitCode};
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

/// The verdicts so far.
type Cases = Arc<Mutex<Vec<TestCase>>>;

/// Also runs in each process that the suite starts, where it runs checks and reports nothing.
pub(crate) fn run(test: &Test, output: &mut Output) -> Result<ExitCode, Failure> {
    let has_report = (output.is_json() || test.junit.is_some()) && !Suite::has_started_this_process();
    if has_report {
        let lists = |argument: &&String| {
            ["--list", "--format", "--logfile", "-q", "--quiet"].contains(&argument.as_str())
        };
        if let Some(argument) = test.harness.iter().find(lists) {
            return Err(Failure::Usage(format!("`{argument}` of the harness cannot be used with a report")));
        }
    }
    let junit = test.junit.as_deref().filter(|_| has_report);
    if let Some(file) = junit {
        // What is tested for minutes has to have a place, and a report of an earlier run goes.
        write(file, "")?;
    }
    let tested = device(&test.device).map_err(|error| match error {
        DeviceError::Syntax(_) if test.device.contains([',', '*']) => Failure::Usage(format!(
            "`test` takes one device, such as `openreg:0`, or the name of a backend for all of its devices; found \
             `{}`",
            test.device
        )),
        error => error.into(),
    })?;
    // A bare name is every device of the backend. What the user names has to be there.
    let suite = match tested.index() {
        None => Suite::new().backend(tested.name()),
        Some(_) => Suite::new().device(&tested.to_string()),
    };
    let cases = Cases::default();
    let suite = suite.require(tested.name()).some_check().on_verdict({
        let cases = Arc::clone(&cases);
        move |name, verdict, took| cases.lock().push(TestCase::new(name, verdict, took))
    });
    end_with_the_reader(test, junit, &cases);
    let mut arguments = vec!["devices".to_owned()];
    if output.is_json() {
        arguments.extend(["--format=json".to_owned(), format!("--logfile={NOWHERE}")]);
    }
    let code = suite.run_with(arguments.into_iter().chain(test.harness.iter().cloned()));
    if has_report {
        let report = Report::new(&test.device, code == ExitCode::SUCCESS, std::mem::take(&mut *cases.lock()));
        if let Some(file) = junit {
            write(file, &report.junit())?;
        }
        if output.is_json() {
            output.document(&report)?;
        }
    }
    // The harness has 101 for a check that fails.
    Ok(if code == ExitCode::SUCCESS { code } else { ExitCode::FAILURE })
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text).map_err(|error| Failure::Usage(format!("cannot write {}: {error}", file.display())))
}

/// The harness panics where a reader has closed the pipe. The command ends there with what it knows, and as a
/// failure, since not all has been tested.
fn end_with_the_reader(test: &Test, junit: Option<&Path>, cases: &Cases) {
    let print = panic::take_hook();
    let (tested, junit, cases) = (test.device.clone(), junit.map(Path::to_owned), Arc::clone(cases));
    panic::set_hook(Box::new(move |panic| {
        let is_closed =
            |text: &str| text.contains("BrokenPipe") || text.contains("failed printing to stdout");
        if !panic.payload_as_str().is_some_and(is_closed) {
            return print(panic);
        }
        if let (Some(file), Some(mut cases)) = (&junit, cases.try_lock()) {
            let report = Report::new(&tested, false, std::mem::take(&mut *cases));
            // There is no other place to say it.
            let _ = write(file, &report.junit());
        }
        process::exit(1);
    }));
}
