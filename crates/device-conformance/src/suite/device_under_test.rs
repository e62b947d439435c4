//! A device under test: its tests, and what they find out about it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use device_registry::Device;
use libtest_mimic::{Completion, Failed, Trial};
use parking_lot::Mutex;

use super::hangs::Hangs;
use super::{Suite, one_line};
use crate::availability::unavailable_reason;
use crate::check::Check;
use crate::environment::REQUIRE;
use crate::failure::Failure;
use crate::outcome::Outcome;
use crate::summary::Summary;
use crate::verdict::Verdict;
use crate::{expectations, fault_injection, watchdog};

/// Opening a device may take this many times as long as a check.
const OPENING: u32 = 6;
/// After so many checks that exceed their time limit, the suite skips the device's other checks: each of them could take as long.
const HANGS: usize = 3;

pub(super) struct DeviceUnderTest {
    device: Device,
    required: bool,
    suite: Arc<Suite>,
    summary: Arc<Mutex<Summary>>,
    /// Set by the first check. Holds a reason if the device is unavailable.
    unavailable: OnceLock<Option<String>>,
    exceeded: AtomicUsize,
    /// Those of all devices of the backend.
    hangs: Arc<Hangs>,
}

impl DeviceUnderTest {
    pub(super) fn new(
        device: Device,
        required: bool,
        suite: &Arc<Suite>,
        summary: &Arc<Mutex<Summary>>,
        hangs: &Arc<Hangs>,
    ) -> Self {
        let (suite, summary, hangs) = (Arc::clone(suite), Arc::clone(summary), Arc::clone(hangs));
        let (unavailable, exceeded) = (OnceLock::new(), AtomicUsize::new(0));
        Self { device, required, suite, summary, unavailable, exceeded, hangs }
    }

    /// The test that runs a check on this device.
    pub(super) fn trial(self: &Arc<Self>, check: &'static Check) -> Trial {
        let device = Arc::clone(self);
        Trial::ignorable_test(format!("{}::{}", self.device, check.name()), move || device.run(check))
    }

    fn run(&self, check: &'static Check) -> Result<Completion, Failed> {
        let name = self.device.to_string();
        let skip = |reason: &str| {
            self.summary.lock().skip(&name, reason);
            Ok(Completion::ignored_with(one_line(reason)))
        };
        let verdict = match expectations::reason(&self.suite.unsupported, self.device, check.name()) {
            Some(reason) => Verdict::Unsupported(reason.to_owned()),
            None => match self.unavailable() {
                Some(reason) if !self.required => return skip(reason),
                Some(reason) => Verdict::Failed(format!("{REQUIRE} lists it, and {reason}")),
                None if self.exceeded.load(Ordering::Relaxed) >= HANGS => {
                    return skip(&format!(
                        "not run: {HANGS} checks on this device exceeded their time limit"
                    ));
                }
                None if fault_injection::is_lost_permanently(self.device) => {
                    return skip("not run: an earlier check lost the device, and a reset failed");
                }
                None => match self.verdict(check) {
                    Ok(verdict) => verdict,
                    Err(reason) => return skip(&reason),
                },
            },
        };
        self.summary.lock().count(&name, &verdict);
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

    /// Runs a check. An error is the reason why it cannot be judged.
    fn verdict(&self, check: &'static Check) -> Result<Verdict, String> {
        let expected = expectations::reason(&self.suite.expected_failures, self.device, check.name());
        let (running, limit) = (self.hangs.begin(check.name_on(self.device)), self.suite.time_limit);
        let outcome = match check.run_once(self.device, limit) {
            Ok(outcome) => outcome,
            // An expected hang neither counts nor excuses others. Otherwise a run could pass with hardly any check.
            Err(hung) if expected.is_some() => check.failed(&hung),
            Err(hung) => {
                self.exceeded.fetch_add(1, Ordering::Relaxed);
                let judged = running.judge(hung, limit);
                check.failed(&judged.map_err(|blamed| format!("not judged: `{blamed}` still hangs"))?)
            }
        };
        Ok(Verdict::new(outcome, expected))
    }

    /// Opens the device, the first time. Returns the reason if it is unavailable; the checks find every other error.
    fn unavailable(&self) -> Option<&str> {
        let device = self.device;
        let open = move || match device.open().err().as_ref().and_then(unavailable_reason) {
            Some(reason) => Err(Failure::unsupported(reason)),
            None => Ok(()),
        };
        let unavailable = self.unavailable.get_or_init(|| {
            match watchdog::run(&format!("{device} opens"), device, self.suite.time_limit * OPENING, open) {
                Ok(Outcome::Unsupported(reason)) => Some(reason),
                Ok(Outcome::Passed | Outcome::Failed(_)) | Err(_) => None,
            }
        });
        unavailable.as_deref()
    }
}
