//! The suite that a test program runs.

use std::process::ExitCode;
use std::sync::Arc;

use device_kernels::KernelSet;
use device_registry::BackendErrorKind;
use device_registry::registry::{LoadError, State};
use device_registry::{Device, DeviceError, device};
use libtest_mimic::{Arguments, Completion, Failed, FormatSetting, Trial};
use parking_lot::Mutex;

use crate::check::Check;
use crate::checks::checks;
use crate::environment::{REQUIRE, Settings, required};
use crate::outcome::Outcome;
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
    required: Vec<String>,
    expected_failures: Vec<(String, String)>,
}

/// What the tests found.
#[derive(Default)]
struct Counts {
    /// The subject, if the device is available.
    subject: Option<Subject>,
    passed: usize,
    failed: usize,
    expected: usize,
    unsupported: usize,
}

impl Suite {
    /// Tests the kernel sets that are linked for the backend of a device, in the order in which they are
    /// asked.
    pub fn new(device: &str) -> Self {
        Self { device: device.to_owned(), set: None, required: Vec::new(), expected_failures: Vec::new() }
    }

    /// Tests this kernel set in place of those that are linked.
    pub fn set(mut self, set: &'static dyn KernelSet) -> Self {
        self.set = Some(set);
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
        let counts = Arc::new(Mutex::new(Counts::default()));
        let problems = self.unmatched_patterns();
        let (name, is_json) = (self.device.clone(), arguments.format == Some(FormatSetting::Json));
        let conclusion = libtest_mimic::run(&arguments, self.trials(settings, &counts));
        if arguments.list {
            return ExitCode::SUCCESS;
        }
        if !is_json {
            let Counts { subject, passed, failed, expected, unsupported } = &*counts.lock();
            println!(
                "{name}: {passed} passed, {failed} failed, {expected} expected failures, {unsupported} unsupported"
            );
            if let Some((claimed, unclaimed)) = subject.as_ref().map(Subject::call_counts) {
                println!("{name}: {claimed} calls were claimed and run, {unclaimed} were not claimed");
            }
        }
        for problem in &problems {
            eprintln!("error: {problem}");
        }
        if problems.is_empty() { conclusion.exit_code() } else { ExitCode::from(101) }
    }

    fn trials(self, settings: Settings, counts: &Arc<Mutex<Counts>>) -> Vec<Trial> {
        let subject = match availability(&self.device) {
            Availability::Available(device) => match self.set {
                Some(set) => Ok(Subject::new(device, set)),
                None => Subject::linked(device),
            },
            Availability::Unavailable(reason) => {
                let backend = self.device.split([':', '@']).next().unwrap_or_default().to_owned();
                let is_required = required().contains(&backend);
                let name = format!("{}::device", self.device);
                return vec![if is_required {
                    let message = format!("{REQUIRE} lists `{backend}`, and {reason}");
                    Trial::test(name, move || Err(message.into()))
                } else {
                    Trial::ignorable_test(name, move || Ok(Completion::ignored_with(one_line(&reason))))
                }];
            }
            Availability::Broken(message) => Err(message),
        };
        let subject = match subject {
            Ok(subject) => subject,
            Err(message) => {
                return vec![Trial::test(format!("{}::device", self.device), move || Err(message.into()))];
            }
        };
        counts.lock().subject = Some(subject.clone());
        let suite = Arc::new(self);
        let trial = |check: Arc<Check>| {
            let (suite, subject, counts) = (Arc::clone(&suite), subject.clone(), Arc::clone(counts));
            Trial::ignorable_test(format!("{}::{}", suite.device, check.name()), move || {
                let outcome = check.run_with(&subject, settings);
                suite.verdict(check.name(), outcome, &mut counts.lock())
            })
        };
        checks().into_iter().map(trial).collect()
    }

    /// The outcome of a check, in the light of what the author expects.
    fn verdict(&self, check: &str, outcome: Outcome, counts: &mut Counts) -> Result<Completion, Failed> {
        let expected = self.expected_failures.iter().find(|(pattern, _)| matches(pattern, check));
        let is_required = self.required.iter().any(|pattern| matches(pattern, check));
        match (outcome, expected) {
            (Outcome::Passed, None) => {
                counts.passed += 1;
                Ok(Completion::Completed)
            }
            (Outcome::Failed(_), Some((_, reason))) => {
                counts.expected += 1;
                Ok(Completion::ignored_with(format_args!("expected failure: {}", one_line(reason))))
            }
            (Outcome::Unsupported(call), _) if !is_required => {
                counts.unsupported += 1;
                Ok(Completion::ignored_with(format_args!("unsupported: {}", one_line(&call))))
            }
            (outcome, _) => {
                counts.failed += 1;
                Err(match outcome {
                    Outcome::Failed(message) => message,
                    Outcome::Unsupported(call) => {
                        format!("expected kernel sets that claim calls of this check, found none, such as for {call}")
                    }
                    Outcome::Passed => "expected a failure, and the check passes\nhelp: remove the `expected_failure`".to_owned(),
                }
                .into())
            }
        }
    }

    fn unmatched_patterns(&self) -> Vec<String> {
        let names: Vec<String> = checks().iter().map(|check| check.name().to_owned()).collect();
        let patterns = self.required.iter().chain(self.expected_failures.iter().map(|(pattern, _)| pattern));
        patterns
            .filter(|pattern| !names.iter().any(|name| matches(pattern, name)))
            .map(|pattern| {
                format!("the pattern `{pattern}` matches no check\nhelp: `--list` shows all names")
            })
            .collect()
    }
}

/// Whether a device can be tested on this machine.
enum Availability {
    Available(Device),
    /// There is no driver or no hardware, or a switch disables the backend. That is no defect.
    Unavailable(String),
    Broken(String),
}

fn availability(name: &str) -> Availability {
    let of_error = |error: DeviceError| {
        let unavailable = match &error {
            DeviceError::Backend(LoadError::Unavailable { .. } | LoadError::Disabled { .. }) => true,
            _ => error.backend_error().is_some_and(|error| error.kind() == BackendErrorKind::Unavailable),
        };
        if unavailable {
            Availability::Unavailable(error.to_string())
        } else {
            Availability::Broken(format!("{error:?}"))
        }
    };
    let device = match device(name) {
        Ok(device) => device,
        Err(error) => return of_error(error),
    };
    let entry = device_registry::backends().get(device.name());
    if let Some(State::Disabled { by, .. }) = entry.map(|entry| entry.state()) {
        return Availability::Unavailable(format!("it is disabled by {by}"));
    }
    match device_registry::device_count(device.name()) {
        Ok(0) => return Availability::Unavailable("it has no devices here".to_owned()),
        Ok(_) => {}
        Err(error) => return of_error(error),
    }
    match device.open() {
        Ok(()) => Availability::Available(device.resolve()),
        Err(error) => of_error(error),
    }
}

/// Whether a glob pattern matches a name. `*` stands for any text, including none.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| matches(rest, &name[at..]))
        }),
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl KernelSet for Nothing {
        fn supports(&self, _device: Device, _call: &device_kernels::Call) -> bool {
            false
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
        let ends = |check, outcome| suite.verdict(check, outcome, &mut Counts::default()).is_ok();
        let (failed, unsupported) = (Outcome::Failed("no".to_owned()), Outcome::Unsupported("no".to_owned()));
        assert!(ends("unary::tan", failed.clone()) && !ends("unary::sin", failed));
        assert!(!ends("unary::tan", Outcome::Passed) && ends("unary::sin", Outcome::Passed));
        assert!(ends("unary::sin", unsupported.clone()) && !ends("matmul::bias", unsupported));
    }

    #[test]
    fn a_pattern_that_matches_no_check_is_a_problem() {
        let problems =
            Suite::new("cpu").requires("binary::*").expected_failure("unry::*", "").unmatched_patterns();
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("the pattern `unry::*` "), "{problems:?}");
    }

    #[test]
    fn a_device_that_does_not_exist_is_broken_and_the_cpu_is_available() {
        assert!(matches!(availability("cpu"), Availability::Available(_)));
        assert!(matches!(availability("not_linked"), Availability::Broken(_)));
    }
}
