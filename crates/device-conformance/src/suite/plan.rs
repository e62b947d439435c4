//! The tests of a run: one for each device and check, and one for each backend that has no devices to test.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use device_registry::backends;
use libtest_mimic::{Arguments, Trial};
use parking_lot::Mutex;

use super::builder::{Suite, backend_of};
use super::host::Host;
use super::trials::DeviceTrials;
use crate::availability::Availability;
use crate::checks::checks;
use crate::environment::REQUIRE;
use crate::expectations::{Expectation, unmatched_pattern};
use crate::summary::Summary;
use crate::verdict::Verdict;

/// A driver that forgets to write its count looks like this, and a suite that tests nothing is not green.
const NO_DEVICES: &str = "it counts 0 devices, so there is nothing to test\n\
     help: a backend that finds no driver or no hardware returns `unavailable` with the reason, from `load` or \
     `device_count`, and is then skipped; where a machine has no devices, `DEVICE_BACKEND_DISABLE` takes the backend out \
     of the run";

/// The tests of a run, and what is wrong with the run as a whole.
pub(super) struct Plan {
    pub(super) trials: Vec<Trial>,
    pub(super) problems: Vec<String>,
}

impl Plan {
    /// Loads each backend and counts its devices. Adds a row for each device to the summary.
    pub(super) fn new(
        suite: &Arc<Suite>,
        host: &Arc<Host>,
        required: &BTreeSet<String>,
        summary: &Arc<Mutex<Summary>>,
    ) -> Self {
        let mut plan = Self { trials: Vec::new(), problems: Vec::new() };
        let mut devices = Vec::new();
        let mut unavailable = Vec::new();
        for name in suite.backend_names(required) {
            let is_required = required.contains(&name);
            match host.load(&name) {
                Availability::Available(found) if found.is_empty() => {
                    plan.fail_backend(suite, &name, NO_DEVICES.to_owned(), is_required, summary);
                }
                Availability::Available(found) => {
                    for device in found.iter().filter(|device| suite.tests(device)) {
                        summary.lock().add(device);
                        let device = Arc::new(DeviceTrials::new(&name, device, suite, host, summary));
                        plan.trials.extend(checks().map(|check| device.trial(check)));
                    }
                    devices.extend(found);
                }
                Availability::Unavailable(reason) if !is_required => {
                    plan.replace_backend(suite, &name, Verdict::Skipped(reason), summary);
                    unavailable.push(name);
                }
                Availability::Unavailable(reason) => {
                    plan.fail_backend(
                        suite,
                        &name,
                        if suite.required.contains(&name) {
                            format!("it cannot be tested: {reason}")
                        } else {
                            format!("{REQUIRE} lists it, and {reason}")
                        },
                        is_required,
                        summary,
                    );
                }
                Availability::Broken(message) => {
                    plan.fail_backend(suite, &name, message, is_required, summary);
                }
            }
        }
        if plan.trials.is_empty() && suite.devices.is_empty() {
            plan.problems
                .push("no backend is linked into this program, so there is nothing to test".to_owned());
        }
        for device in suite.devices.iter().filter(|device| !devices.contains(device)) {
            // Else what is wrong with the backend is reported.
            if devices.iter().any(|other| backend_of(other) == backend_of(device)) {
                plan.problems
                    .push(format!("`{device}` is not a device here: there are {}", devices.join(", ")));
            }
        }
        plan.problems.extend(suite.unmatched_patterns(&devices, &unavailable));
        plan
    }

    /// Adds a failing test in place of the checks of a backend. A required backend also fails the run,
    /// because a filter may not select that test.
    fn fail_backend(
        &mut self,
        suite: &Arc<Suite>,
        name: &str,
        message: String,
        is_required: bool,
        summary: &Mutex<Summary>,
    ) {
        if is_required {
            self.problems.push(format!("{name}: {message}"));
        }
        self.replace_backend(suite, name, Verdict::Failed(message), summary);
    }

    /// Adds a test with this verdict in place of the checks of a backend.
    fn replace_backend(
        &mut self,
        suite: &Arc<Suite>,
        name: &str,
        verdict: Verdict,
        summary: &Mutex<Summary>,
    ) {
        summary.lock().add(name);
        summary.lock().count(name, &verdict);
        let (suite, test) = (Arc::clone(suite), format!("{name}::devices"));
        self.trials.push(Trial::ignorable_test(test.clone(), move || {
            suite.conclude(&test, verdict, Duration::ZERO)
        }));
    }

    /// Numbers the tests that the filters select, as a terminal shows how many are left.
    pub(super) fn number(&mut self, arguments: &Arguments) {
        // The number is part of what `--skip` looks at.
        if arguments.list || !arguments.skip.is_empty() {
            return;
        }
        let is_selected = |trial: &Trial| !arguments.is_filtered_out(trial);
        let count = self.trials.iter().filter(|trial| is_selected(trial)).count();
        let mut number = 0;
        let numbered = std::mem::take(&mut self.trials).into_iter().map(|trial| {
            if !is_selected(&trial) {
                return trial;
            }
            number += 1;
            let width = count.to_string().len();
            trial.with_kind(format!("{number:>width$}/{count}"))
        });
        self.trials = numbered.collect();
    }
}

impl Suite {
    /// An error for each pattern that matches no check, such as one with a typing error.
    fn unmatched_patterns(&self, devices: &[String], unavailable: &[String]) -> impl Iterator<Item = String> {
        let is_matched = move |expectation: &&Expectation| {
            let matches = |device: &str| checks().any(|check| expectation.matches(device, check.name()));
            // The devices of an unavailable backend are unknown.
            devices.iter().any(|device| matches(device))
                || matches("cpu")
                || unavailable.iter().any(|backend| expectation.names_backend(backend))
        };
        let all = self.unsupported.iter().chain(&self.expected_failures);
        all.filter(move |expectation| !is_matched(expectation))
            .map(|expectation| unmatched_pattern(&expectation.pattern))
    }

    /// Whether a device of a backend that is tested is tested itself.
    fn tests(&self, device: &str) -> bool {
        let of_backend = |selected: &&String| backend_of(selected) == backend_of(device);
        let mut selected = self.devices.iter().filter(of_backend).peekable();
        selected.peek().is_none() || selected.any(|selected| selected == device)
    }

    /// The backends to test: the selected ones, or else every linked and every required one.
    fn backend_names(&self, required: &BTreeSet<String>) -> BTreeSet<String> {
        if self.backends.is_empty() {
            backends().names().map(str::to_owned).chain(required.iter().cloned()).collect()
        } else {
            self.backends.iter().cloned().collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::names;

    fn planned(suite: Suite, required: &str) -> (Vec<String>, Vec<String>, String) {
        let suite = Arc::new(suite);
        let summary = Arc::default();
        let host = Arc::new(Host::here(&suite));
        let Plan { trials, problems } = Plan::new(&suite, &host, &names(required), &summary);
        let shown = summary.lock().to_string();
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
    fn a_required_backend_that_is_not_linked_fails() {
        let (trials, problems, _) = planned(Suite::new(), "cpu, not_linked");
        assert!(trials.contains(&"not_linked::devices".to_owned()));
        let problem =
            |problem: &String| problem.starts_with("not_linked: it is not linked into this program");
        assert!(problems.iter().any(problem), "{problems:?}");
        let (trials, problems, _) = planned(Suite::new().backend("not_linked"), "");
        assert_eq!((trials, problems), (vec!["not_linked::devices".to_owned()], vec![]));
    }

    #[test]
    fn a_device_is_tested_alone_and_one_that_is_not_there_is_a_problem() {
        let (trials, problems, _) = planned(Suite::new().device("cpu"), "");
        assert_eq!((trials.len(), problems.len()), (checks().count(), 0));
        let (trials, problems, summary) = planned(Suite::new().device("cpu:7"), "");
        assert_eq!((trials.len(), problems.len()), (0, 1), "{problems:?}");
        assert!(problems.contains(&"`cpu:7` is not a device here: there are cpu".to_owned()), "{problems:?}");
        assert!(!summary.contains("cpu "), "{summary}");
    }

    #[test]
    fn the_numbers_are_those_of_the_selected_tests() {
        let numbered = |arguments: &[&str]| {
            let suite = Arc::new(Suite::new().device("cpu"));
            let host = Arc::new(Host::here(&suite));
            let mut plan = Plan::new(&suite, &host, &BTreeSet::new(), &Arc::default());
            let arguments = Arguments::from_iter(["suite"].iter().chain(arguments));
            plan.number(&arguments);
            let shown = plan.trials.iter().filter(|trial| !arguments.is_filtered_out(trial));
            shown.map(|trial| (trial.kind().to_owned(), trial.name().to_owned())).collect::<Vec<_>>()
        };
        let count = checks().count();
        let all = numbered(&[]);
        assert_eq!((all.len(), &*all[8].0), (count, &*format!("  9/{count}")));
        let one = numbered(&["--exact", "cpu::memory::round_trip"]);
        assert_eq!(one, [("1/1".to_owned(), "cpu::memory::round_trip".to_owned())]);
        assert!(numbered(&["--skip", "1"]).iter().all(|(kind, _)| kind.is_empty()));
        assert!(numbered(&["--list"]).iter().all(|(kind, _)| kind.is_empty()));
    }

    #[test]
    fn a_pattern_that_matches_no_check_is_a_problem() {
        let suite =
            Suite::new().backend("cpu").unsupported("memory::*", "").expected_failure("cpu::memry::*", "");
        let (_, problems, _) = planned(suite, "");
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(problem.starts_with("the pattern `cpu::memry::*` "), "{problem}");
    }
}
