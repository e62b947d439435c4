//! Where the checks run: in this process, or in workers, so that a driver that crashes does not take the
//! report with it.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;

use super::builder::Suite;
use super::device_under_test::{DeviceUnderTest, OPENING};
use super::hangs::Hangs;
use super::workers::Workers;
use crate::availability::Availability;
use crate::check::Check;
use crate::verdict::{Judged, Verdict};
use crate::watchdog::panic_message;

pub(super) enum Host {
    Here(Here),
    Workers(Workers),
}

impl Host {
    /// In this process.
    pub(super) fn here(suite: &Arc<Suite>) -> Self {
        Self::Here(Here::new(suite))
    }

    /// Loads a backend, and counts its devices.
    pub(super) fn load(&self, backend: &str) -> Availability<String> {
        match self {
            Self::Here(here) => here.load(backend),
            Self::Workers(workers) => workers.load(backend),
        }
    }

    /// Runs a check on a device of a backend.
    pub(super) fn run(&self, backend: &str, device: &str, check: &'static Check) -> Judged {
        match self {
            Self::Here(here) => here.run(backend, device, check),
            Self::Workers(workers) => workers.run(backend, device, check),
        }
    }

    /// Ends the run. Returns what is wrong with it, and with no check in particular.
    pub(super) fn end(&self) -> Vec<String> {
        match self {
            Self::Here(_) => Vec::new(),
            Self::Workers(workers) => workers.end(),
        }
    }
}

/// Runs checks in this process.
pub(super) struct Here {
    suite: Arc<Suite>,
    required: BTreeSet<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    devices: BTreeMap<String, Arc<DeviceUnderTest>>,
    /// One for each backend.
    hangs: BTreeMap<String, Arc<Hangs>>,
}

impl Here {
    pub(super) fn new(suite: &Arc<Suite>) -> Self {
        Self { suite: Arc::clone(suite), required: suite.required(), state: Mutex::default() }
    }

    pub(super) fn load(&self, backend: &str) -> Availability<String> {
        Availability::within(self.suite.time_limit * OPENING, backend)
    }

    /// Runs a check on a device of a backend that was loaded.
    ///
    /// Always returns: a panic outside the check is a failure.
    pub(super) fn run(&self, backend: &str, device: &str, check: &'static Check) -> Judged {
        let run = || match self.device(backend, device) {
            Ok(device) => device.run(check),
            Err(error) => Verdict::Failed(format!("{error:?}")).into(),
        };
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            Verdict::Failed(format!("a panic outside the check: {}", panic_message(&*panic))).into()
        })
    }

    fn device(
        &self,
        backend: &str,
        device: &str,
    ) -> Result<Arc<DeviceUnderTest>, device_registry::DeviceError> {
        if let Some(found) = self.state.lock().devices.get(device) {
            return Ok(Arc::clone(found));
        }
        let found = device_registry::device(device)?;
        let state = &mut *self.state.lock();
        let hangs = state.hangs.entry(backend.to_owned()).or_default();
        let new =
            || Arc::new(DeviceUnderTest::new(found, self.required.contains(backend), &self.suite, hangs));
        Ok(Arc::clone(state.devices.entry(device.to_owned()).or_insert_with(new)))
    }
}
