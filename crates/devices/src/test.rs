//! `devices test`: the conformance suite on one device.

use std::process::ExitCode;

use device_conformance::Suite;
use device_registry::device;

use crate::Failure;
use crate::arguments::Test;

/// Also runs in each process that the suite starts, where it runs checks.
pub(crate) fn run(test: &Test) -> Result<ExitCode, Failure> {
    let tested = device(&test.device)?;
    // A bare name is every device of the backend. What the user names has to be there.
    let suite = match tested.index() {
        None => Suite::new().backend(tested.name()),
        Some(_) => Suite::new().device(&tested.to_string()),
    };
    let suite = suite.require(tested.name()).some_check();
    let code = suite.run_with(std::iter::once("devices").chain(test.harness.iter().map(String::as_str)));
    // The harness has 101 for a check that fails.
    Ok(if code == ExitCode::SUCCESS { code } else { ExitCode::FAILURE })
}
