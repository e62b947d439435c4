//! The suite as a builder: what it tests, and what a backend says in advance.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use device_registry::take_validation_reports;
use libtest_mimic::{Completion, Failed};

use crate::check::{Check, DEFAULT_TIME_LIMIT};
use crate::environment;
use crate::expectations::Expectation;
use crate::outcome::Outcome;
use crate::verdict::Verdict;
use crate::watchdog;

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
    pub(super) backends: Vec<String>,
    /// If empty, every device of the backends.
    pub(super) devices: Vec<String>,
    /// In addition to the variable's.
    pub(super) required: Vec<String>,
    /// Whether the filters have to select one.
    pub(super) some_check: bool,
    pub(super) unsupported: Vec<Expectation>,
    pub(super) expected_failures: Vec<Expectation>,
    pub(super) time_limit: Duration,
    after_each: Option<AfterEach>,
    on_verdict: Option<OnVerdict>,
}

type OnVerdict = Arc<dyn Fn(&str, &Verdict, Duration) + Send + Sync>;

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
            some_check: false,
            unsupported: Vec::new(),
            expected_failures: Vec::new(),
            time_limit: DEFAULT_TIME_LIMIT,
            after_each: None,
            on_verdict: None,
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

    /// Fails if the filters among the arguments select no check, unless they are for a list. Otherwise that
    /// passes, as in each test program: `cargo test FILTER` runs all of them.
    pub fn some_check(mut self) -> Self {
        self.some_check = true;
        self
    }

    /// Fails if this backend cannot be tested, as one that `DEVICE_CONFORMANCE_REQUIRE` lists.
    pub fn require(mut self, backend: &str) -> Self {
        self.required.push(backend.to_owned());
        self
    }

    pub(super) fn required(&self) -> BTreeSet<String> {
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

    /// Calls a function with each test's name, its verdict and how long it took, for reports. The tests are
    /// those that the filters select; they end in any order, on several threads.
    pub fn on_verdict(mut self, report: impl Fn(&str, &Verdict, Duration) + Send + Sync + 'static) -> Self {
        self.on_verdict = Some(Arc::new(report));
        self
    }

    /// The result of a test, of which the report is made.
    pub(super) fn conclude(
        &self,
        test: &str,
        verdict: Verdict,
        took: Duration,
    ) -> Result<Completion, Failed> {
        if let Some(report) = &self.on_verdict {
            report(test, &verdict, took);
        }
        verdict.completion()
    }

    /// The outcome of a check, after the function of [`after_each`](Self::after_each) and the reports of the
    /// core's own validating layer.
    pub(super) fn after(&self, check: &Check, outcome: Outcome, limit: Duration) -> Outcome {
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

/// The name of the backend in a device string.
pub(super) fn backend_of(device: &str) -> &str {
    device.split(':').next().unwrap_or_default()
}
