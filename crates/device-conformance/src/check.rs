//! A check: what it proves, what it needs, and how it is run on a device.

use std::fmt;
use std::time::Duration;

use device_registry::Device;

use crate::checks::GROUPS;
use crate::context::Context;
use crate::failure::Failure;
use crate::isolate::Hung;
use crate::outcome::Outcome;
use crate::{faults, isolate, lanes};

/// How long a check may take if nobody says otherwise. Those that pass take far less.
pub const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(10);

/// All checks, by group.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    GROUPS.iter().copied().flatten()
}

/// One thing that every device has to do, if it offers what the check [needs](Self::requirements).
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

    /// For a check that has things fail: it has the backend alone, and afterwards there are no faults any more, no
    /// errors that nobody was told of, and no device that is lost.
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

    /// What is true of a device that passes, as one sentence.
    #[must_use]
    pub fn proves(&self) -> &'static str {
        self.proves
    }

    /// What a device has to offer for the check to make sense, such as `two devices`. Where it does not, the
    /// check is unsupported.
    pub fn requirements(&self) -> impl Iterator<Item = &'static str> {
        self.needs.iter().map(|need| need.name())
    }

    /// Whether no other check runs on the backend meanwhile, because it would change what this one sees.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// Runs it on a device, on a thread of its own, and waits for those that must not run at the same time.
    ///
    /// A panic is a failure. So is a check that does not end within `limit`, counted from when it begins; what it
    /// was doing goes on, as nothing can stop it.
    pub fn run(&'static self, device: Device, limit: Duration) -> Outcome {
        self.run_once(device, limit).unwrap_or_else(|hung| hung.into())
    }

    /// The same, which tells one that did not end from other failures.
    pub(crate) fn run_once(&'static self, device: Device, limit: Duration) -> Result<Outcome, Hung> {
        let device = device.resolve();
        let _place = lanes::enter(device.name(), self.exclusive, self.uses_cpu);
        let name = format!("{device}::{}", self.name);
        let outcome = isolate::run(&name, limit, move || {
            let context = Context::new(device, limit)?;
            for need in self.needs {
                need.is_met(&context)?;
            }
            (self.run)(&context)
        });
        let outcome = match self.leaves_failures {
            // Also if it did not end: what stalls then goes on.
            true => match isolate::run(&name, limit, move || faults::mend(device)) {
                Ok(Outcome::Passed) => outcome,
                Ok(other) => outcome.map(|outcome| if outcome == Outcome::Passed { other } else { outcome }),
                Err(hung) => Err(hung),
            },
            false => outcome,
        };
        outcome.map(|outcome| match outcome {
            Outcome::Failed(message) => Outcome::Failed(format!("{message}\nto pass: {}", self.proves)),
            outcome => outcome,
        })
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
    /// The device tells how much memory is free.
    FreeMemory,
    /// Host memory that the device reaches faster.
    PinnedMemory,
    /// Events that have a time.
    TimedEvents,
    /// Faults to order.
    Faults,
}

impl Need {
    fn name(self) -> &'static str {
        match self {
            Self::Peer => "two devices",
            Self::FreeMemory => "known free memory",
            Self::PinnedMemory => "pinned host memory",
            Self::TimedEvents => "events with a time",
            Self::Faults => "faults to order",
        }
    }

    fn is_met(self, context: &Context) -> Result<(), Failure> {
        let declared = |is: bool| match is {
            true => Ok(()),
            false => Err(Failure::unsupported(format_args!("the device does not declare {}", self.name()))),
        };
        match self {
            Self::Peer => context.peer().map(drop),
            Self::FreeMemory => context.free_memory().map(drop),
            Self::PinnedMemory => declared(context.properties().pinned_memory),
            Self::TimedEvents => declared(context.properties().timed_events),
            Self::Faults => faults::are_offered(context.device()),
        }
    }
}
