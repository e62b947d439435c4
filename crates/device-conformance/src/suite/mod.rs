//! The suite that a test program runs: a builder, and how it runs as a program.

mod device_under_test;
mod hangs;
mod host;
mod plan;
mod trials;
mod wire;
mod worker;
mod workers;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use device_registry::take_validation_reports;
use libtest_mimic::Arguments;
use parking_lot::Mutex;

use self::host::Host;
use self::plan::{Plan, backend_of};
use self::workers::Workers;
use crate::check::{Check, DEFAULT_TIME_LIMIT, checks};
use crate::environment::{self, Processes};
use crate::expectations::Expectation;
use crate::harness::conclude;
use crate::outcome::Outcome;
use crate::programs;
use crate::subprocess;
use crate::summary::Summary;
use crate::watchdog;

/// Tests every device of every linked backend. A shorthand for [`Suite::new`] and [`Suite::run`].
///
/// It takes the arguments that `cargo test` passes on behind `--`.
#[must_use = "return it from `main`, or failures are lost"]
pub fn run() -> ExitCode {
    Suite::new().run()
}

/// The suite, with what a backend says in advance: which checks it does not support, and which are expected
/// to fail.
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
/// A pattern is the name of a check, `memory::round_trip`, or a device and a check,
/// `acme:1::memory::round_trip`. In it, `*` stands for any text. A pattern that matches no check is an error.
#[derive(Clone)]
#[must_use = "it tests nothing before `run` is called"]
pub struct Suite {
    /// If empty, every linked backend.
    backends: Vec<String>,
    /// If empty, every device of the backends.
    devices: Vec<String>,
    /// In addition to the variable's.
    required: Vec<String>,
    unsupported: Vec<Expectation>,
    expected_failures: Vec<Expectation>,
    time_limit: Duration,
    after_each: Option<AfterEach>,
}

type AfterEach = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

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
            devices: Vec::new(),
            required: Vec::new(),
            unsupported: Vec::new(),
            expected_failures: Vec::new(),
            time_limit: DEFAULT_TIME_LIMIT,
            after_each: None,
        }
    }

    /// Tests only this backend, and those named by further calls. A backend that is not linked fails.
    pub fn backend(mut self, name: &str) -> Self {
        self.backends.push(name.to_owned());
        self
    }

    /// Tests only this device, such as `acme:1`, and those named by further calls. A device that its
    /// backend does not have fails.
    pub fn device(mut self, device: &str) -> Self {
        let backend = backend_of(device).to_owned();
        if !self.backends.contains(&backend) {
            self.backends.push(backend);
        }
        self.devices.push(device.to_owned());
        self
    }

    /// Fails if this backend cannot be tested, as one that `DEVICE_CONFORMANCE_REQUIRE` lists.
    pub fn require(mut self, backend: &str) -> Self {
        self.required.push(backend.to_owned());
        self
    }

    fn required(&self) -> BTreeSet<String> {
        let mut required = environment::required();
        required.extend(self.required.iter().cloned());
        required
    }

    /// Does not run the checks that the pattern matches: they make no sense on the device, permanently. The
    /// report shows the reason.
    pub fn unsupported(mut self, pattern: &str, reason: &str) -> Self {
        self.unsupported.push(Expectation::new(pattern, reason));
        self
    }

    /// Expects the checks that the pattern matches to fail, for now. The report shows the reason.
    ///
    /// The suite runs these checks, and one that passes is a failure: the expectation has to go when the
    /// defect does.
    pub fn expected_failure(mut self, pattern: &str, reason: &str) -> Self {
        self.expected_failures.push(Expectation::new(pattern, reason));
        self
    }

    /// How long a check may take, in place of [`DEFAULT_TIME_LIMIT`]. The variable
    /// `DEVICE_CONFORMANCE_TIME_LIMIT` overrides it.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Calls a function after each check, in the process of the check. An error of it fails the check, with
    /// the error as its message, and so does a panic, or a function that exceeds the check's time limit.
    ///
    /// A driver with a validation layer returns what the layer has reported since the last call. Checks run
    /// at the same time, so a report may be of another one: `--test-threads 1` tells them apart.
    pub fn after_each(mut self, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.after_each = Some(Arc::new(check));
        self
    }

    /// Runs the suite as a test program, with the program's arguments, and prints a table at the end.
    ///
    /// The checks run in a process that this one starts: this program once more, with the same arguments. So
    /// `main` runs in both, and must not print before this call.
    ///
    /// The exit code is a failure if any test that the filters select fails. Whatever the filters select, it
    /// is also a failure if a backend that `DEVICE_CONFORMANCE_REQUIRE` lists cannot be tested, if a pattern
    /// matches no check, if there is nothing to test, or if a process of the checks ends by itself. But a
    /// crash while a backend is loaded fails only the test `<backend>::devices`, like any other error of that
    /// backend, and a filter may not select it.
    #[must_use = "return it from `main`, or failures are lost"]
    pub fn run(self) -> ExitCode {
        self.run_with(std::env::args_os())
    }

    /// [`run`](Self::run) with other arguments, the program's name first: for a program that has arguments of
    /// its own. The processes of the checks are still started with all of the program's own arguments, and
    /// `main` must get there with these.
    #[must_use = "return it from `main`, or failures are lost"]
    pub fn run_with(self, arguments: impl IntoIterator<Item: Into<OsString> + Clone>) -> ExitCode {
        self.try_run(arguments).unwrap_or_else(|message| {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        })
    }

    fn try_run(
        mut self,
        arguments: impl IntoIterator<Item: Into<OsString> + Clone>,
    ) -> Result<ExitCode, String> {
        let own = subprocess::begin_suite();
        let processes = environment::processes()?.unwrap_or(Processes::Shared);
        self.time_limit = environment::time_limit()?.unwrap_or(self.time_limit);
        programs::settings()?;
        let suite = Arc::new(self);
        if let Some(worker) = environment::worker()? {
            return worker::serve(&suite, worker).map(|()| ExitCode::SUCCESS);
        }
        let arguments = match own {
            Some(own) => Arguments::from_iter(own),
            None => Arguments::from_iter(arguments),
        };
        let host = Arc::new(match processes {
            // A check runs this program once more for itself: that is its own process.
            Processes::Here => Host::here(&suite),
            Processes::Shared | Processes::Own if subprocess::is_one() => Host::here(&suite),
            Processes::Shared => Host::Workers(Workers::new(&suite, false)),
            Processes::Own => Host::Workers(Workers::new(&suite, true)),
        });
        let summary = Arc::new(Mutex::new(Summary::default()));
        let Plan { trials, mut problems } = Plan::new(&suite, &host, &suite.required(), &summary);
        let conclusion = libtest_mimic::run(&arguments, trials);
        problems.extend(host.end());
        let summary = summary.lock();
        problems.extend(
            summary
                .untested(checks().count())
                .map(|device| format!("all checks are unsupported on `{device}`, so nothing was tested")),
        );
        Ok(conclude(&arguments, &conclusion, &*summary, &problems))
    }

    /// The outcome of a check, after the function of [`after_each`](Self::after_each) and the reports of the
    /// core's own validating layer.
    fn after(&self, check: &Check, outcome: Outcome, limit: Duration) -> Outcome {
        let mut messages = take_validation_reports();
        messages.extend(self.after_each.as_ref().and_then(|after_each| {
            let after_each = Arc::clone(after_each);
            watchdog::after_each(limit, move || after_each()).err()
        }));
        if messages.is_empty() {
            return outcome;
        }
        let after = format!("after it: {}", messages.join("; "));
        match outcome {
            Outcome::Failed(message) => Outcome::Failed(format!("{message}\nand {after}")),
            Outcome::Passed | Outcome::Unsupported(_) => check.failed(&after),
        }
    }
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite")
            .field("backends", &self.backends)
            .field("devices", &self.devices)
            .field("required", &self.required)
            .field("unsupported", &self.unsupported)
            .field("expected_failures", &self.expected_failures)
            .field("time_limit", &self.time_limit)
            .finish_non_exhaustive()
    }
}
