//! The suite: which backends are tested, what is known of them, and the tests that come of it.

use std::collections::BTreeSet;
use std::env;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use device_registry::{Device, backends};
use libtest_mimic::{Arguments, Completion, Failed, FormatSetting, Trial};

use crate::check::{Check, DEFAULT_TIME_LIMIT, checks};
use crate::failure::Failure;
use crate::lists::{self, Listed, Verdict, verdict};
use crate::outcome::Outcome;
use crate::programs::Settings;
use crate::standing::{Standing, unavailable};
use crate::summary::Summary;
use crate::{faults, isolate};

/// The variable that lists backends which must not be skipped.
pub(crate) const REQUIRE: &str = "DEVICE_CONFORMANCE_REQUIRE";
/// The variable with the seconds that a check may take.
pub(crate) const TIME_LIMIT: &str = "DEVICE_CONFORMANCE_TIME_LIMIT";

/// Opening a device may take this many times as long as a check.
const OPENING: u32 = 6;
/// A device on which so many checks did not end is not tested any further: each of the others would wait as long.
const HANGS: usize = 3;

/// Tests every linked backend, each of its devices, with the arguments of `cargo test` behind `--`. The same as
/// [`Suite::new`] and [`Suite::run`].
#[must_use = "return it from `main`, or failures are lost"]
pub fn run() -> ExitCode {
    Suite::new().run()
}

/// The suite for a backend that says something of itself: which checks make no sense for it, and which are known
/// to fail.
///
/// ```no_run
/// device_registry::autoload!();
///
/// fn main() -> std::process::ExitCode {
///     device_conformance::Suite::new()
///         .backend("acme")
///         .unsupported("memory::many_at_once", "the driver has 100 allocations and no more")
///         .expected_failure("acme:1::copies::chain", "driver 3.1 loses copies; fixed in 3.2")
///         .run()
/// }
/// ```
///
/// A pattern is a check's name, `memory::round_trip`, or one with the device, `acme:1::memory::round_trip`, in
/// which `*` stands for any text. One that is about no check is an error.
#[derive(Clone, Debug)]
#[must_use = "it tests nothing before `run` is called"]
pub struct Suite {
    /// All that are linked if empty.
    backends: Vec<String>,
    unsupported: Vec<Listed>,
    expected_failures: Vec<Listed>,
    time_limit: Duration,
}

impl Default for Suite {
    fn default() -> Self {
        Self::new()
    }
}

impl Suite {
    /// Every linked backend, with nothing known of any.
    pub fn new() -> Self {
        Self {
            backends: Vec::new(),
            unsupported: Vec::new(),
            expected_failures: Vec::new(),
            time_limit: DEFAULT_TIME_LIMIT,
        }
    }

    /// Tests this backend, and no other but those that this is called with as well. One that is not linked fails.
    pub fn backend(mut self, name: &str) -> Self {
        self.backends.push(name.to_owned());
        self
    }

    /// Does not run what the pattern is about: it makes no sense on the device and never will. The reason is shown.
    pub fn unsupported(mut self, pattern: &str, reason: &str) -> Self {
        self.unsupported.push(Listed::new(pattern, reason));
        self
    }

    /// Expects what the pattern is about to fail, for now. The reason is shown. If it passes, that is a failure, so
    /// that the line goes when the defect does.
    pub fn expected_failure(mut self, pattern: &str, reason: &str) -> Self {
        self.expected_failures.push(Listed::new(pattern, reason));
        self
    }

    /// How long a check may take, in place of [`DEFAULT_TIME_LIMIT`]. The variable `DEVICE_CONFORMANCE_TIME_LIMIT`
    /// wins.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Runs the suite as a test program, with its arguments, and prints a table at the end.
    ///
    /// The exit code is a failure if any of the tests that are left by a filter fails; and, whatever the filter, if a
    /// backend that `DEVICE_CONFORMANCE_REQUIRE` lists cannot be tested, or if a pattern is about no check.
    #[must_use = "return it from `main`, or failures are lost"]
    pub fn run(mut self) -> ExitCode {
        let arguments = Arguments::from_args();
        match time_limit(env::var(TIME_LIMIT).ok().as_deref()) {
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
        let required = names(&env::var(REQUIRE).unwrap_or_default());
        let summary = Arc::new(Mutex::new(Summary::default()));
        let (trials, problems) = self.trials(&required, &summary);
        let conclusion = libtest_mimic::run(&arguments, trials);
        if arguments.list {
            return ExitCode::SUCCESS;
        }
        if arguments.format != Some(FormatSetting::Json) {
            println!("{}", lock(&summary));
        }
        for problem in &problems {
            eprintln!("error: {problem}");
        }
        if problems.is_empty() { conclusion.exit_code() } else { ExitCode::from(101) }
    }

    /// The tests, and what is wrong with the run as a whole.
    fn trials(self, required: &BTreeSet<String>, summary: &Arc<Mutex<Summary>>) -> (Vec<Trial>, Vec<String>) {
        let suite = Arc::new(self);
        let (mut trials, mut problems) = (Vec::new(), Vec::new());
        let (mut devices, mut absent) = (Vec::new(), Vec::new());
        for name in suite.names(required) {
            let is_required = required.contains(&name);
            let message = match Standing::of(&name) {
                Standing::Devices(found) => {
                    for &device in &found {
                        lock(summary).add(device);
                        let state = DeviceState::new(device, is_required, Arc::clone(&suite), summary);
                        let state = Arc::new(state);
                        trials.extend(checks().map(|check| state.trial(check)));
                    }
                    devices.extend(found);
                    continue;
                }
                Standing::Absent(reason) if !is_required => {
                    lock(summary).add(&name);
                    lock(summary).skip(&name, &reason);
                    let ignored = move || Ok(Completion::ignored_with(one_line(&reason)));
                    trials.push(Trial::ignorable_test(format!("{name}::devices"), ignored));
                    absent.push(name);
                    continue;
                }
                Standing::Absent(reason) => format!("{REQUIRE} lists it, and {reason}"),
                Standing::Broken(message) => message,
            };
            lock(summary).add(&name);
            lock(summary).count(&name, &Verdict::Failed(message.clone()));
            if is_required {
                problems.push(format!("{name}: {message}"));
            }
            trials.push(Trial::test(format!("{name}::devices"), move || Err(message.into())));
        }
        problems.extend(suite.patterns_about_nothing(&devices, &absent));
        (trials, problems)
    }

    /// A slip of the pen in a list would otherwise go unnoticed.
    fn patterns_about_nothing(&self, devices: &[Device], absent: &[String]) -> impl Iterator<Item = String> {
        let is_about_something = move |listed: &&Listed| {
            let is_about = |device| checks().any(|check| listed.is_about(device, check.name()));
            // Of a backend that is not here, nobody knows the devices.
            devices.iter().any(|&device| is_about(device))
                || is_about(Device::cpu())
                || absent.iter().any(|backend| listed.names_backend(backend))
        };
        let all = self.unsupported.iter().chain(&self.expected_failures);
        all.filter(move |listed| !is_about_something(listed))
            .map(|listed| format!("no check is called `{}`, which is on a list of the suite", listed.pattern))
    }

    /// The backends to test: those chosen or all that are linked, and those that have to be there.
    fn names(&self, required: &BTreeSet<String>) -> BTreeSet<String> {
        match self.backends.is_empty() {
            true => backends().names().map(str::to_owned).chain(required.iter().cloned()).collect(),
            false => self.backends.iter().cloned().collect(),
        }
    }
}

/// A device that is tested, and what is known of it by now.
struct DeviceState {
    device: Device,
    required: bool,
    suite: Arc<Suite>,
    summary: Arc<Mutex<Summary>>,
    /// Why it cannot be tested, once it was opened.
    absent: OnceLock<Option<String>>,
    hangs: AtomicUsize,
}

impl DeviceState {
    fn new(device: Device, required: bool, suite: Arc<Suite>, summary: &Arc<Mutex<Summary>>) -> Self {
        let summary = Arc::clone(summary);
        Self { device, required, suite, summary, absent: OnceLock::new(), hangs: AtomicUsize::new(0) }
    }

    fn trial(self: &Arc<Self>, check: &'static Check) -> Trial {
        let state = Arc::clone(self);
        Trial::ignorable_test(format!("{}::{}", self.device, check.name()), move || state.run(check))
    }

    fn run(&self, check: &'static Check) -> Result<Completion, Failed> {
        let name = self.device.to_string();
        let skip = |reason: &str| {
            lock(&self.summary).skip(&name, reason);
            Ok(Completion::ignored_with(one_line(reason)))
        };
        let verdict = match lists::reason(&self.suite.unsupported, self.device, check.name()) {
            Some(reason) => Verdict::Unsupported(reason.to_owned()),
            None => match self.absent() {
                Some(reason) if !self.required => return skip(reason),
                Some(reason) => Verdict::Failed(format!("{REQUIRE} lists it, and {reason}")),
                None if self.hangs.load(Ordering::Relaxed) >= HANGS => {
                    return skip(&format!("not run: {HANGS} checks on this device did not end"));
                }
                None if faults::is_lost_for_good(self.device) => {
                    return skip("not run: a check has lost the device, and it cannot be reset");
                }
                None => self.verdict(check),
            },
        };
        lock(&self.summary).count(&name, &verdict);
        match verdict {
            Verdict::Passed => Ok(Completion::Completed),
            Verdict::Failed(message) => Err(message.into()),
            Verdict::ExpectedFailure(reason) => {
                Ok(Completion::ignored_with(format_args!("expected failure: {}", one_line(&reason))))
            }
            Verdict::Unsupported(reason) => {
                Ok(Completion::ignored_with(format_args!("unsupported: {}", one_line(&reason))))
            }
        }
    }

    fn verdict(&self, check: &'static Check) -> Verdict {
        let expected = lists::reason(&self.suite.expected_failures, self.device, check.name());
        let outcome = check.run_once(self.device, self.suite.time_limit).unwrap_or_else(|hung| {
            // Those that are expected are no reason to stop: the run would pass with hardly a check.
            self.hangs.fetch_add(usize::from(expected.is_none()), Ordering::Relaxed);
            hung.into()
        });
        verdict(outcome, expected)
    }

    /// Why the device is not there after all, if it says so when it is opened. All else is for the checks to find.
    fn absent(&self) -> Option<&str> {
        let device = self.device;
        let open = move || match device.open().err().as_ref().and_then(unavailable) {
            Some(reason) => Err(Failure::unsupported(reason)),
            None => Ok(()),
        };
        let absent = self.absent.get_or_init(|| {
            match isolate::run(&format!("{device} opens"), self.suite.time_limit * OPENING, open) {
                Ok(Outcome::Unsupported(reason)) => Some(reason),
                Ok(Outcome::Passed | Outcome::Failed(_)) | Err(_) => None,
            }
        });
        absent.as_deref()
    }
}

fn lock(summary: &Mutex<Summary>) -> std::sync::MutexGuard<'_, Summary> {
    summary.lock().unwrap_or_else(PoisonError::into_inner)
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

/// The names of a comma list.
pub(crate) fn names(list: &str) -> BTreeSet<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The time limit that a variable's value says.
fn time_limit(value: Option<&str>) -> Result<Option<Duration>, String> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    let seconds = value.parse().ok().filter(|&seconds: &f64| seconds > 0.0);
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match limit {
        Some(limit) => Ok(Some(limit)),
        None => Err(format!("{TIME_LIMIT} is `{value}`, and has to be a number of seconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(suite: Suite, required: &str) -> (Vec<String>, Vec<String>, String) {
        let summary = Arc::default();
        let (trials, problems) = suite.trials(&names(required), &summary);
        let shown = lock(&summary).to_string();
        (trials.iter().map(|trial| trial.name().to_owned()).collect(), problems, shown)
    }

    #[test]
    fn there_is_a_test_for_each_device_and_check() {
        let (trials, problems, summary) = planned(Suite::new().backend("cpu"), "");
        assert_eq!(trials.len(), checks().count());
        assert!(trials.contains(&"cpu::memory::round_trip".to_owned()), "{trials:?}");
        assert!(problems.is_empty() && summary.lines().any(|line| line.starts_with("cpu ")), "{summary}");
    }

    #[test]
    fn what_is_required_and_not_there_fails() {
        let (trials, problems, _) = planned(Suite::new(), "cpu, not_linked");
        assert!(trials.contains(&"not_linked::devices".to_owned()));
        let problem =
            |problem: &String| problem.starts_with("not_linked: it is not linked into this program");
        assert!(problems.iter().any(problem), "{problems:?}");
        let (trials, problems, _) = planned(Suite::new().backend("not_linked"), "");
        assert_eq!((trials, problems), (vec!["not_linked::devices".to_owned()], vec![]));
    }

    #[test]
    fn a_pattern_that_is_about_no_check_is_a_problem() {
        let suite =
            Suite::new().backend("cpu").unsupported("memory::*", "").expected_failure("cpu::memry::*", "");
        let (_, problems, _) = planned(suite, "");
        assert_eq!(problems, ["no check is called `cpu::memry::*`, which is on a list of the suite"]);
    }

    #[test]
    fn a_list_of_names_is_separated_by_commas() {
        assert_eq!(names(" cpu,openreg ,,").into_iter().collect::<Vec<_>>(), ["cpu", "openreg"]);
        assert!(names("").is_empty());
    }

    #[test]
    fn a_time_limit_is_a_number_of_seconds() {
        assert_eq!(time_limit(None), Ok(None));
        assert_eq!(time_limit(Some("")), Ok(None));
        assert_eq!(time_limit(Some("0.5")), Ok(Some(Duration::from_millis(500))));
        for wrong in ["0", "-1", "10s", "inf", "NaN"] {
            assert!(time_limit(Some(wrong)).unwrap_err().contains(wrong));
        }
    }
}
