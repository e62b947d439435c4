//! A check: what it proves, what it needs, and how to run it on a device.

use std::fmt;
use std::time::Duration;

use device_registry::Device;

use crate::backend_lock::BackendLock;
use crate::context::Context;
use crate::failure::{Failure, ensure_supported};
use crate::hung::Hung;
use crate::outcome::Outcome;
use crate::{fault_injection, watchdog};

/// How long a check may take by default: so long that a busy machine fails no check. Those that pass take a
/// few seconds at most, on two cores and a device that is emulated.
pub const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(30);

/// A test of one property that every device has, if it offers what the check [needs](Self::requirements).
///
/// ```
/// use device_conformance::{DEFAULT_TIME_LIMIT, Outcome, checks};
/// use device_registry::Device;
///
/// let round_trip = checks().find(|check| check.name() == "memory::round_trip").expect("it is one of them");
/// assert_eq!(round_trip.run(Device::cpu(), DEFAULT_TIME_LIMIT), Outcome::Passed);
/// ```
pub struct Check {
    name: &'static str,
    proves: &'static str,
    needs: &'static [Need],
    exclusive: bool,
    uses_cpu: bool,
    leaves_failures: bool,
    run: fn(&Context) -> Result<(), Failure>,
}

impl Check {
    pub(crate) const fn new(
        name: &'static str,
        proves: &'static str,
        run: fn(&Context) -> Result<(), Failure>,
    ) -> Self {
        Self { name, proves, needs: &[], exclusive: false, uses_cpu: false, leaves_failures: false, run }
    }

    pub(crate) const fn needs(mut self, needs: &'static [Need]) -> Self {
        self.needs = needs;
        self
    }

    pub(crate) const fn exclusive(mut self) -> Self {
        self.exclusive = true;
        self
    }

    pub(crate) const fn uses_cpu(mut self) -> Self {
        self.uses_cpu = true;
        self
    }

    /// For a check that injects failures. It runs exclusively, and a cleanup follows it, which leaves no
    /// faults, no unreported errors and no lost devices.
    pub(crate) const fn leaves_failures(mut self) -> Self {
        self.exclusive = true;
        self.leaves_failures = true;
        self
    }

    /// The group and the name, such as `memory::round_trip`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// One sentence that is true of every device that passes.
    #[must_use]
    pub fn proves(&self) -> &'static str {
        self.proves
    }

    /// What a device has to offer for the check to make sense, such as `two devices`. On any other device the
    /// check is unsupported.
    pub fn requirements(&self) -> impl Iterator<Item = &'static str> {
        self.needs.iter().map(|need| need.name())
    }

    /// Whether the check runs while no other check uses the backend, because others would change what this
    /// one sees.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// Runs the check on a device, on its own thread. First waits for checks that must not run at the
    /// same time.
    ///
    /// A panic is a failure. So is a check that exceeds `limit`, counted from when it begins; its thread
    /// keeps running, because nothing can stop it.
    pub fn run(&'static self, device: Device, limit: Duration) -> Outcome {
        self.run_once(device, limit).unwrap_or_else(|hung| self.failed(&hung))
    }

    /// Like [`run`](Self::run), but distinguishes a hang from other failures.
    pub(crate) fn run_once(&'static self, device: Device, limit: Duration) -> Result<Outcome, Hung> {
        let device = device.resolve();
        let _lock = BackendLock::acquire(device.name(), self.exclusive, self.uses_cpu);
        let name = self.name_on(device);
        let outcome = watchdog::run(&name, device, limit, move || {
            let context = Context::new(device, limit)?;
            for need in self.needs {
                need.is_met(&context)?;
            }
            (self.run)(&context)
        });
        let outcome = if self.leaves_failures {
            // Even after a hang: cleared faults end a stall.
            match watchdog::run(&name, device, limit, move || fault_injection::clean_up(device)) {
                Ok(Outcome::Passed) => outcome,
                Ok(other) => outcome.map(|outcome| if outcome == Outcome::Passed { other } else { outcome }),
                Err(hung) => Err(outcome.err().unwrap_or(hung)),
            }
        } else {
            outcome
        };
        outcome.map(|outcome| match outcome {
            Outcome::Failed(message) => self.failed(&message),
            outcome => outcome,
        })
    }

    /// The outcome of a failure with this message.
    pub(crate) fn failed(&self, message: &dyn fmt::Display) -> Outcome {
        Outcome::Failed(format!("{message}\nto pass: {}", self.proves))
    }

    /// The name of the check's test on a device, and of its thread.
    pub(crate) fn name_on(&self, device: Device) -> String {
        format!("{}::{}", device.resolve(), self.name)
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("name", &self.name)
            .field("needs", &self.needs)
            .field("exclusive", &self.exclusive)
            .finish_non_exhaustive()
    }
}

/// What a device has to offer for a check to make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Another device of the same backend.
    Peer,
    /// The device reports how much memory is free.
    FreeMemory,
    /// Host memory that the device accesses faster.
    PinnedMemory,
    /// Events with timestamps.
    TimedEvents,
    /// Fault injection.
    Faults,
}

impl Need {
    fn name(self) -> &'static str {
        match self {
            Self::Peer => "two devices",
            Self::FreeMemory => "known free memory",
            Self::PinnedMemory => "pinned host memory",
            Self::TimedEvents => "timed events",
            Self::Faults => "fault injection",
        }
    }

    fn is_met(self, context: &Context) -> Result<(), Failure> {
        let declared = |is: bool| {
            ensure_supported!(is, "the device does not declare {}", self.name());
            Ok(())
        };
        match self {
            Self::Peer => context.peer().map(drop),
            Self::FreeMemory => context.free_memory().map(drop),
            Self::PinnedMemory => declared(context.properties().pinned_memory),
            Self::TimedEvents => declared(context.properties().timed_events),
            Self::Faults => fault_injection::require(context.device()),
        }
    }
}
