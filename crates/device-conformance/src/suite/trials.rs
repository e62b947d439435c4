//! The tests of a device, and what the report shows of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use libtest_mimic::Trial;
use parking_lot::Mutex;

use super::builder::Suite;
use super::host::Host;
use crate::check::Check;
use crate::expectations;
use crate::summary::Summary;
use crate::verdict::Verdict;

/// After this many checks that exceed their time limit, the suite skips the device's other checks: each of
/// them could take as long.
const HANGS: usize = 3;

pub(super) struct DeviceTrials {
    backend: String,
    device: String,
    suite: Arc<Suite>,
    host: Arc<Host>,
    summary: Arc<Mutex<Summary>>,
    /// How many checks exceeded their time limit.
    exceeded: AtomicUsize,
}

impl DeviceTrials {
    pub(super) fn new(
        backend: &str,
        device: &str,
        suite: &Arc<Suite>,
        host: &Arc<Host>,
        summary: &Arc<Mutex<Summary>>,
    ) -> Self {
        let backend = backend.to_owned();
        let device = device.to_owned();
        let exceeded = AtomicUsize::new(0);
        let suite = Arc::clone(suite);
        let host = Arc::clone(host);
        let summary = Arc::clone(summary);
        Self { backend, device, suite, host, summary, exceeded }
    }

    /// The test that runs a check on this device.
    pub(super) fn trial(self: &Arc<Self>, check: &'static Check) -> Trial {
        let device = Arc::clone(self);
        let name = format!("{}::{}", self.device, check.name());
        Trial::ignorable_test(name.clone(), move || {
            let begun = Instant::now();
            let verdict = device.run(check);
            device.summary.lock().count(&device.device, &verdict);
            device.suite.conclude(&name, verdict, begun.elapsed())
        })
    }

    fn run(&self, check: &'static Check) -> Verdict {
        if let Some(reason) = expectations::reason(&self.suite.unsupported, &self.device, check.name()) {
            return Verdict::Unsupported(reason.to_owned());
        }
        if self.exceeded.load(Ordering::Relaxed) >= HANGS {
            return Verdict::Skipped(format!(
                "not run: {HANGS} checks on this device exceeded their time limit"
            ));
        }
        let judged = self.host.run(&self.backend, &self.device, check);
        self.exceeded.fetch_add(judged.exceeded.into(), Ordering::Relaxed);
        judged.verdict
    }
}
