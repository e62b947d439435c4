//! The suite that a test program runs.

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;

use device_conformance::harness::{
    Counts, Outcome, REQUIRE, Unusable, Verdict, conclude, glob_matches, open, required, unmatched_pattern,
};
use device_kernels::KernelSet;
use libtest_mimic::{Arguments, Trial};
use parking_lot::Mutex;

use crate::check::{Check, Settings};
use crate::checks::checks;
use crate::subject::Subject;

/// Tests the linked kernel sets of a device. A shorthand for [`Suite::new`] and [`Suite::run`].
///
/// It takes the arguments that `cargo test` passes on behind `--`.
#[must_use = "return it from `main`, or failures are lost"]
pub fn run(device: &str) -> ExitCode {
    Suite::new(device).run()
}

/// The suite for one device, with what the author of a kernel set says in advance.
///
/// ```no_run
/// device_registry::autoload!();
///
/// fn main() -> std::process::ExitCode {
///     device_kernels_conformance::Suite::new("acme")
///         .requires("binary::*")
///         .expected_failure("unary::tan", "the driver's tangent has 9 units; fixed in 3.2")
///         .run()
/// }
/// ```
///
/// A pattern is the name of a check. In it, `*` stands for any text. A pattern that matches no check is an
/// error.
#[derive(Clone)]
#[must_use = "it tests nothing before `run` is called"]
pub struct Suite {
    device: String,
    set: Option<&'static dyn KernelSet>,
    only: Vec<String>,
    required: Vec<String>,
    expected_failures: Vec<(String, String)>,
}

/// What the tests found.
struct Summary {
    device: String,
    checks: Counts,
    /// The subject, if the device is available.
    subject: Option<Subject>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, checks, subject } = self;
        write!(f, "{device}: {checks}")?;
        let Some((claimed, unclaimed)) = subject.as_ref().map(Subject::call_counts) else { return Ok(()) };
        write!(f, "\n{device}: {claimed} calls were claimed and run, {unclaimed} were not claimed")
    }
}

impl Suite {
    /// Tests the kernel sets that are linked for the backend of a device, in the order in which they are
    /// asked.
    pub fn new(device: &str) -> Self {
        let (only, required, expected_failures) = Default::default();
        Self { device: device.to_owned(), set: None, only, required, expected_failures }
    }

    /// Tests this kernel set in place of those that are linked.
    pub fn set(mut self, set: &'static dyn KernelSet) -> Self {
        self.set = Some(set);
        self
    }

    /// Runs only the checks that the pattern matches, and those named by further calls: for the author of one
    /// operator, whose program also has another crate's kernels.
    pub fn only(mut self, pattern: &str) -> Self {
        self.only.push(pattern.to_owned());
        self
    }

    /// Requires that the sets claim calls of the checks that the pattern matches. Such a check fails where it
    /// would be unsupported.
    pub fn requires(mut self, pattern: &str) -> Self {
        self.required.push(pattern.to_owned());
        self
    }

    /// Expects the checks that the pattern matches to fail, for now. The report shows the reason.
    ///
    /// The suite runs these checks, and one that passes is a failure: the expectation has to go when the
    /// defect does.
    pub fn expected_failure(mut self, pattern: &str, reason: &str) -> Self {
        self.expected_failures.push((pattern.to_owned(), reason.to_owned()));
        self
    }

    /// Runs the suite as a test program, with the program's arguments, and prints the numbers at the end: of
    /// checks, and of calls that were claimed and not.
    ///
    /// The exit code is a failure if any test that the filters select fails, if a pattern matches no check,
    /// or if the device is unavailable and `DEVICE_CONFORMANCE_REQUIRE` lists its backend.
    #[must_use = "return it from `main`, or failures are lost"]
    pub fn run(self) -> ExitCode {
        let arguments = Arguments::from_args();
        let settings = match Settings::from_env() {
            Ok(settings) => settings,
            Err(message) => {
                eprintln!("error: {message}");
                return ExitCode::FAILURE;
            }
        };
        let problems = self.unmatched_patterns();
        let summary = Summary { device: self.device.clone(), checks: Counts::default(), subject: None };
        let summary = Arc::new(Mutex::new(summary));
        let conclusion = libtest_mimic::run(&arguments, self.trials(settings, &summary));
        conclude(&arguments, &conclusion, &*summary.lock(), &problems)
    }

    fn trials(self, settings: Settings, summary: &Arc<Mutex<Summary>>) -> Vec<Trial> {
        let name = format!("{}::device", self.device);
        let subject = open(&self.device).and_then(|device| match self.set {
            Some(set) => Ok(Subject::new(device, set)),
            None => Subject::linked(device).map_err(Unusable::Broken),
        });
        let subject = match subject {
            Ok(subject) => subject,
            Err(Unusable::Unavailable(reason)) => {
                let backend = self.device.split([':', '@']).next().unwrap_or_default();
                let verdict = if required().contains(backend) {
                    Verdict::Failed(format!("{REQUIRE} lists `{backend}`, and {reason}"))
                } else {
                    Verdict::Skipped(reason)
                };
                return vec![Trial::ignorable_test(name, || verdict.completion())];
            }
            Err(Unusable::Broken(message)) => return vec![Trial::test(name, || Err(message.into()))],
        };
        summary.lock().subject = Some(subject.clone());
        let only = self.only.clone();
        let suite = Arc::new(self);
        let trial = |check: Arc<Check>| {
            let suite = Arc::clone(&suite);
            let subject = subject.clone();
            let summary = Arc::clone(summary);
            Trial::ignorable_test(format!("{}::{}", suite.device, check.name()), move || {
                let verdict = suite.verdict(check.name(), check.run_with(&subject, settings));
                summary.lock().checks.count(&verdict);
                verdict.completion()
            })
        };
        checks().into_iter().filter(|check| runs(&only, check)).map(trial).collect()
    }

    /// The outcome of a check, in the light of what the author expects.
    fn verdict(&self, check: &str, outcome: Outcome) -> Verdict {
        let mut expected = self.expected_failures.iter();
        let expected = expected.find(|(pattern, _)| glob_matches(pattern, check));
        match Verdict::new(outcome, expected.map(|(_, reason)| &**reason)) {
            Verdict::Unsupported(call)
                if self.required.iter().any(|pattern| glob_matches(pattern, check)) =>
            {
                Verdict::Failed(format!(
                    "expected kernel sets that claim calls of this check, found none, such as for {call}"
                ))
            }
            verdict => verdict,
        }
    }

    fn unmatched_patterns(&self) -> Vec<String> {
        let names: Vec<String> = checks().iter().map(|check| check.name().to_owned()).collect();
        let patterns = self.only.iter().chain(&self.required);
        let patterns = patterns.chain(self.expected_failures.iter().map(|(pattern, _)| pattern));
        patterns
            .filter(|pattern| !names.iter().any(|name| glob_matches(pattern, name)))
            .map(|pattern| unmatched_pattern(pattern))
            .collect()
    }
}

/// Whether a check runs if only those that match these patterns do.
fn runs(only: &[String], check: &Check) -> bool {
    only.is_empty() || only.iter().any(|pattern| glob_matches(pattern, check.name()))
}

#[cfg(test)]
mod tests {
    use device_registry::Device;

    use super::*;

    struct Nothing;

    impl KernelSet for Nothing {
        fn coverage(&self, _device: Device) -> Vec<device_kernels::Coverage> {
            Vec::new()
        }

        fn launch(
            &self,
            call: &device_kernels::Call,
            _launch: &device_registry::backend::Launch<'_>,
        ) -> Result<(), device_registry::backend::BackendError> {
            panic!("{call} was not claimed")
        }
    }

    #[test]
    fn a_set_that_claims_nothing_fails_and_passes_no_check() {
        let subject = Subject::new(Device::cpu(), &Nothing);
        let settings = Settings::from_env().unwrap();
        assert_eq!(subject.call_counts(), (0, 0));
        for check in checks() {
            let outcome = check.run_with(&subject, settings);
            match check.name() {
                "claims::something" => assert!(matches!(outcome, Outcome::Failed(_)), "{outcome}"),
                name => assert!(matches!(outcome, Outcome::Unsupported(_)), "{name}: {outcome}"),
            }
        }
        let (claimed, unclaimed) = subject.call_counts();
        assert!(claimed == 0 && unclaimed > 1000, "{unclaimed}");
    }

    #[test]
    fn an_expected_failure_is_none_and_an_unexpected_pass_is_one() {
        let suite = Suite::new("cpu").requires("matmul::*").expected_failure("unary::tan", "nine units");
        let ends = |check, outcome| suite.verdict(check, outcome).completion().is_ok();
        let failed = Outcome::Failed("no".to_owned());
        let unsupported = Outcome::Unsupported("no".to_owned());
        assert!(ends("unary::tan", failed.clone()) && !ends("unary::sin", failed));
        assert!(!ends("unary::tan", Outcome::Passed) && ends("unary::sin", Outcome::Passed));
        assert!(ends("unary::sin", unsupported.clone()) && !ends("matmul::bias", unsupported));
    }

    #[test]
    fn only_the_checks_of_the_patterns_run() {
        let suite = Suite::new("cpu").only("claims::*").only("matmul::bias*");
        let names = checks().into_iter().filter(|check| runs(&suite.only, check));
        let names: Vec<_> = names.map(|check| check.name().to_owned()).collect();
        assert!(names.contains(&"claims::something".to_owned()), "{names:?}");
        assert!(names.iter().all(|name| name.starts_with("claims::") || name.starts_with("matmul::bias")));
        assert_eq!(checks().iter().filter(|check| runs(&[], check)).count(), checks().len());
        assert_eq!(Suite::new("cpu").only("clams::*").unmatched_patterns().len(), 1);
    }

    #[test]
    fn a_pattern_that_matches_no_check_is_a_problem() {
        let problems =
            Suite::new("cpu").requires("binary::*").expected_failure("unry::*", "").unmatched_patterns();
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("the pattern `unry::*` "), "{problems:?}");
    }
}
