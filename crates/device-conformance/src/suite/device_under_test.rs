//! A device under test: its tests, and what they find out about it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use device_registry::Device;
use libtest_mimic::{Completion, Failed, Trial};
use parking_lot::Mutex;

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
/// After so many checks that hang, the suite skips the device's other checks: each of them could take as long.
const HANGS: usize = 3;

pub(super) struct DeviceUnderTest {
    device: Device,
    required: bool,
    suite: Arc<Suite>,
    summary: Arc<Mutex<Summary>>,
    /// Set by the first check. Holds a reason if the device is unavailable.
    unavailable: OnceLock<Option<String>>,
    hangs: AtomicUsize,
}

impl DeviceUnderTest {
    pub(super) fn new(
        device: Device,
        required: bool,
        suite: Arc<Suite>,
        summary: &Arc<Mutex<Summary>>,
    ) -> Self {
        let summary = Arc::clone(summary);
        Self { device, required, suite, summary, unavailable: OnceLock::new(), hangs: AtomicUsize::new(0) }
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
                None if self.hangs.load(Ordering::Relaxed) >= HANGS => {
                    return skip(&format!(
                        "not run: {HANGS} checks on this device exceeded their time limit"
                    ));
                }
                None if fault_injection::is_lost_permanently(self.device) => {
                    return skip("not run: an earlier check lost the device, and a reset failed");
                }
                None => self.verdict(check),
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

    fn verdict(&self, check: &'static Check) -> Verdict {
        let expected = expectations::reason(&self.suite.expected_failures, self.device, check.name());
        let outcome = check.run_once(self.device, self.suite.time_limit).unwrap_or_else(|hung| {
            // An expected hang does not count. Otherwise a run could pass with hardly any check.
            self.hangs.fetch_add(usize::from(expected.is_none()), Ordering::Relaxed);
            hung.into()
        });
        Verdict::new(outcome, expected)
    }

    /// Opens the device, the first time. Returns the reason if it is unavailable; the checks find every other error.
    fn unavailable(&self) -> Option<&str> {
        let device = self.device;
        let open = move || match device.open().err().as_ref().and_then(unavailable_reason) {
            Some(reason) => Err(Failure::unsupported(reason)),
            None => Ok(()),
        };
        let unavailable = self.unavailable.get_or_init(|| {
            match watchdog::run(&format!("{device} opens"), self.suite.time_limit * OPENING, open) {
                Ok(Outcome::Unsupported(reason)) => Some(reason),
                Ok(Outcome::Passed | Outcome::Failed(_)) | Err(_) => None,
            }
        });
        unavailable.as_deref()
    }
}
