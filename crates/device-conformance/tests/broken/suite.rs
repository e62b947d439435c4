//! Runs the whole suite on a broken backend, in its own process: how it reports checks that hang.

use std::env;
use std::process::{Command, ExitCode};
use std::time::Duration;

use device_conformance::Suite;
use libtest_mimic::{Failed, Trial};

use crate::defect::Defect;
use crate::twin::TWINS;

/// Makes this program the suite. Holds a twin, its defect, and the check that is expected to fail, or `-`.
const SUITE: &str = "DEVICE_CONFORMANCE_BROKEN_SUITE";

const LIMIT: Duration = Duration::from_secs(1);

/// Checks that hang on the twin `sound` with the defect `LocksOneMemoryTwice`, in the order in which they
/// run.
const FIRST: &str = "sound:0::copies::copy_within_at_every_place";
const SECOND: &str = "sound:0::threads::copies_within_one_buffer";

/// Runs the suite, if this process is for that.
pub(crate) fn main() -> Option<ExitCode> {
    let task = env::var(SUITE).ok()?;
    let [twin, defect, expected] = task.split(' ').collect::<Vec<_>>()[..] else { return None };
    let twin = TWINS.into_iter().find(|of| of.name == twin)?;
    Defect::of_name(defect)?.appear();
    // Registers it.
    twin.device();
    let suite = Suite::new().backend(twin.name).time_limit(LIMIT);
    Some(if expected == "-" { suite } else { suite.expected_failure(expected, "it hangs") }.run())
}

pub(crate) fn trials() -> [Trial; 2] {
    [
        Trial::test("suite::a_hang_behind_another_is_not_judged", behind_a_hang),
        Trial::test("suite::a_hang_behind_an_expected_one_fails", behind_an_expected_hang),
    ]
}

/// What the suite prints about checks that hang, one after the other.
fn several_that_hang(expected: &str) -> Result<String, Failed> {
    let mut suite = Command::new(env::current_exe()?);
    suite.env(SUITE, format!("sound locks_one_memory_twice {expected}"));
    suite.args(["within", "--skip=sound:1::", "--skip=sound:2::", "--test-threads=1"]);
    suite.env("DEVICE_FLIGHT_RECORDER", "1");
    let output = suite.output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Err(format!("expected the run to fail: {printed}").into());
    }
    Ok(printed)
}

/// An error unless the report has a line with these texts, in this order.
fn expect_line(printed: &str, texts: &[&str]) -> Result<(), Failed> {
    let has_all =
        |line: &str| texts.iter().try_fold(line, |rest, text| Some(rest.split_once(text)?.1)).is_some();
    if printed.lines().any(has_all) {
        return Ok(());
    }
    Err(format!("expected a line with {texts:?} in: {printed}").into())
}

fn behind_a_hang() -> Result<(), Failed> {
    let printed = several_that_hang("-")?;
    expect_line(&printed, &["test ", FIRST, "... FAILED"])?;
    let call =
        ["it exceeded the time limit of 1s; under way: `sound:0` copy for ", "s, on the thread `", FIRST];
    expect_line(&printed, &call)?;
    expect_line(&printed, &["s ago  [", FIRST, "] sound:0 called copy of "])?;
    expect_line(&printed, &["to pass: a copy between ranges of one buffer"])?;
    expect_line(&printed, &["test ", SECOND, "... ignored (not judged: `", FIRST, "` still hangs)"])
}

fn behind_an_expected_hang() -> Result<(), Failed> {
    let printed = several_that_hang(FIRST)?;
    expect_line(&printed, &["test ", FIRST, "... ignored (expected failure: it hangs)"])?;
    expect_line(&printed, &["test ", SECOND, "... FAILED"])
}
