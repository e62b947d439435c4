//! The suite that a test program runs: a builder, and how it runs as a program.

mod device_under_test;
mod hangs;
mod plan;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, FormatSetting};
use parking_lot::Mutex;

use self::plan::Plan;
use crate::check::DEFAULT_TIME_LIMIT;
use crate::environment;
use crate::expectations::Expectation;
use crate::programs::Settings;
use crate::summary::Summary;

/// Tests every device of every linked backend. A shorthand for [`Suite::new`] and [`Suite::run`].
///
/// It takes the arguments that `cargo test` passes on behind `--`.
#[must_use = "return it from `main`, or failures are lost"]
pub fn run() -> ExitCode {
    Suite::new().run()
}

/// The suite, with what a backend says in advance: which checks it does not support, and which are expected to fail.
///
/// ```no_run
/// device_registry::autoload!();
///
/// fn main() -> std::process::ExitCode {
///     device_conformance::Suite::new()
///         .backend("acme")
///         .unsupported("memory::many_at_once", "the driver has 100 allocations and no more")
///         .expected_failure("acme:1::copies::a_long_chain", "driver 3.1 loses copies; fixed in 3.2")
///         .run()
/// }
/// ```
///
/// A pattern is the name of a check, `memory::round_trip`, or a device and a check, `acme:1::memory::round_trip`. In
/// it, `*` stands for any text. A pattern that matches no check is an error.
#[derive(Clone, Debug)]
#[must_use = "it tests nothing before `run` is called"]
pub struct Suite {
    /// If empty, every linked backend.
    backends: Vec<String>,
    unsupported: Vec<Expectation>,
    expected_failures: Vec<Expectation>,
    time_limit: Duration,
}

impl Default for Suite {
    fn default() -> Self {
        Self::new()
    }
}

impl Suite {
    /// Tests every linked backend, without any expectations.
    pub fn new() -> Self {
        Self {
            backends: Vec::new(),
            unsupported: Vec::new(),
            expected_failures: Vec::new(),
            time_limit: DEFAULT_TIME_LIMIT,
        }
    }

    /// Tests this backend, and no others but those of further calls. A backend that is not linked fails.
    pub fn backend(mut self, name: &str) -> Self {
        self.backends.push(name.to_owned());
        self
    }

    /// Does not run the checks that the pattern matches: they make no sense on the device, permanently. The report shows
    /// the reason.
    pub fn unsupported(mut self, pattern: &str, reason: &str) -> Self {
        self.unsupported.push(Expectation::new(pattern, reason));
        self
    }

    /// Expects the checks that the pattern matches to fail, for now. The report shows the reason.
    ///
    /// The suite runs these checks, and one that passes is a failure: the expectation has to go when the defect does.
    pub fn expected_failure(mut self, pattern: &str, reason: &str) -> Self {
        self.expected_failures.push(Expectation::new(pattern, reason));
        self
    }

    /// How long a check may take, in place of [`DEFAULT_TIME_LIMIT`]. The variable `DEVICE_CONFORMANCE_TIME_LIMIT`
    /// overrides it.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Runs the suite as a test program, with the program's arguments, and prints a table at the end.
    ///
    /// The exit code is a failure if any test that the filters select fails. Whatever the filters select, it is also a
    /// failure if a backend that `DEVICE_CONFORMANCE_REQUIRE` lists cannot be tested, or if a pattern matches no check.
    #[must_use = "return it from `main`, or failures are lost"]
    pub fn run(mut self) -> ExitCode {
        let arguments = Arguments::from_args();
        match environment::time_limit() {
            Ok(limit) => self.time_limit = limit.unwrap_or(self.time_limit),
            Err(message) => {
                eprintln!("error: {message}");
                return ExitCode::FAILURE;
            }
        }
        if let Err(message) = Settings::from_env() {
            eprintln!("error: {message}");
            return ExitCode::FAILURE;
        }
        let summary = Arc::new(Mutex::new(Summary::default()));
        let Plan { trials, problems } = Plan::new(self, &environment::required(), &summary);
        let conclusion = libtest_mimic::run(&arguments, trials);
        if arguments.list {
            return ExitCode::SUCCESS;
        }
        if arguments.format != Some(FormatSetting::Json) {
            println!("{}", summary.lock());
        }
        for problem in &problems {
            eprintln!("error: {problem}");
        }
        if problems.is_empty() { conclusion.exit_code() } else { ExitCode::from(101) }
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}
