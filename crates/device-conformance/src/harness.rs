//! What this suite shares with suites for other things that run on devices, such as
//! `device-kernels-conformance`: the variables, the time limit of a check, its outcome, what an author
//! expects of it, and how a run ends.
//!
//! A suite opens its device with [`open`], runs each check with [`within`], and makes a [`Verdict`] of the
//! [`Outcome`], which is the result of a test. [`conclude`] ends the program.
//!
//! ```
//! use device_conformance::harness::{Outcome, Unusable, Verdict, open, within};
//!
//! let device = match open("cpu") {
//!     Ok(device) => device,
//!     Err(Unusable::Unavailable(reason)) => return println!("skipped: {reason}"),
//!     Err(Unusable::Broken(message)) => panic!("{message}"),
//! };
//! let limit = std::time::Duration::from_secs(60);
//! let outcome = match within(limit, "cpu::allocates", move || device.allocate(16)) {
//!     Ok(Ok(_)) => Outcome::Passed,
//!     Ok(Err(error)) => Outcome::Failed(error.to_string()),
//!     Err(unfinished) => Outcome::Failed(unfinished.to_string()),
//! };
//! assert_eq!(Verdict::new(outcome, None), Verdict::Passed);
//! ```

use std::fmt;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Conclusion, FormatSetting};

pub use crate::availability::{Unusable, open};
pub use crate::environment::{CASES, REQUIRE, RandomCases, SEED, required, time_limit};
pub use crate::expectations::{glob_matches, unmatched_pattern};
pub use crate::outcome::Outcome;
pub use crate::summary::Counts;
pub use crate::verdict::Verdict;
pub use crate::watchdog::{Unfinished, within};

/// Prints the summary of a run, unless the program only lists its tests or prints JSON. Then prints what is
/// wrong with the run as a whole, which fails it.
#[must_use = "return it from `main`, or failures are lost"]
pub fn conclude(
    arguments: &Arguments,
    conclusion: &Conclusion,
    summary: &dyn fmt::Display,
    problems: &[String],
) -> ExitCode {
    if arguments.list {
        return ExitCode::SUCCESS;
    }
    if arguments.format != Some(FormatSetting::Json) {
        println!("{summary}");
    }
    for problem in problems {
        eprintln!("error: {problem}");
    }
    if problems.is_empty() { conclusion.exit_code() } else { ExitCode::from(101) }
}
