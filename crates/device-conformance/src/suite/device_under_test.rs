//! A device under test, in the process that uses it.

use std::sync::{Arc, OnceLock};

use device_registry::Device;

use super::builder::Suite;
use super::hangs::Hangs;
use crate::availability::unavailable_reason;
use crate::check::Check;
use crate::devices::is_lost_permanently;
use crate::environment::REQUIRE;
use crate::failure::Failure;
use crate::outcome::Outcome;
use crate::verdict::{Judged, Verdict};
use crate::{expectations, watchdog};

/// Loading a backend, and opening a device, may each take this many times as long as a check.
pub(super) const OPENING: u32 = 6;

pub(super) struct DeviceUnderTest {
    device: Device,
    required: bool,
    suite: Arc<Suite>,
    /// Set by the first check. Holds a reason if the device is unavailable.
    unavailable: OnceLock<Option<String>>,
    /// Shared by all devices of the backend.
    hangs: Arc<Hangs>,
}

impl DeviceUnderTest {
    pub(super) fn new(device: Device, required: bool, suite: &Arc<Suite>, hangs: &Arc<Hangs>) -> Self {
        let suite = Arc::clone(suite);
        let hangs = Arc::clone(hangs);
        Self { device, required, suite, unavailable: OnceLock::new(), hangs }
    }

    /// Runs a check, unless the device is unavailable or lost permanently.
    pub(super) fn run(&self, check: &'static Check) -> Judged {
        match self.unavailable() {
            Some(reason) if !self.required => Verdict::Skipped(reason.to_owned()).into(),
            Some(reason) => Verdict::Failed(format!("{REQUIRE} lists it, and {reason}")).into(),
            None if is_lost_permanently(self.device) => {
                Verdict::Skipped("not run: an earlier check lost the device, and a reset failed".to_owned())
                    .into()
            }
            None => self.judge(check),
        }
    }

    fn judge(&self, check: &'static Check) -> Judged {
        let expected =
            expectations::reason(&self.suite.expected_failures, &self.device.to_string(), check.name());
        let running = self.hangs.begin(check.name_on(self.device));
        let limit = self.suite.time_limit;
        let outcome = match check.run_once(self.device, limit) {
            Ok(outcome) => outcome,
            // An expected hang neither counts nor excuses others. Otherwise a run could pass with hardly any
            // check.
            Err(hung) if expected.is_some() => check.failed(&hung),
            Err(hung) => {
                let verdict = match running.judge(hung, limit) {
                    Ok(message) => Verdict::new(check.failed(&message), expected),
                    Err(blamed) => Verdict::Skipped(format!("not judged: `{blamed}` still hangs")),
                };
                return Judged { verdict, exceeded: true };
            }
        };
        Verdict::new(self.suite.after(check, outcome, limit), expected).into()
    }

    /// Opens the device, the first time. Returns the reason if it is unavailable; the checks find every other
    /// error.
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
