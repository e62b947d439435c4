//! The plan of each thread: a pure function of the seed.

use fastrand::Rng;

/// How many pieces of work a thread does in a round. Between rounds all is dropped, waited for and checked.
const STEPS: usize = 250;

/// The disturbances of a round, which decide what can be checked in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Only the thread that enqueues work reports its errors: which work is done and which is skipped is
    /// known exactly.
    Private,
    /// Threads synchronize whole devices, and so take the errors of each other's streams.
    Public,
    /// Devices are lost and reset. What is read is right, or an error.
    Loss,
    /// One device is closed, again and again. What is read is right, or an error.
    Close {
        /// Its place in the list of devices.
        device: usize,
    },
    /// All of it at once. Contents are not compared.
    Storm,
}

/// A piece of work, with numbers that choose what it is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) kind: Kind,
    /// Each chooses from a list, by the remainder.
    pub(crate) pick: [usize; 3],
    /// The bytes that are written, a length, or which of several ways is taken.
    pub(crate) value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    // Work of the thread's own, whose outcome is known.
    NewStream,
    DropStream,
    NewBuffer,
    DropBuffer,
    Write,
    Fill,
    Copy,
    Read,
    FinishRead,
    Call,
    Kernel,
    FailingCall,
    FailingKernel,
    Record,
    Wait,
    Query,
    Synchronize,
    SynchronizeEvent,
    BlockingWrite,
    BlockingRead,
    BlockingCopy,
    GuardedRead,
    // Work in streams and buffers that all threads use at once.
    RacingNew,
    RacingDrop,
    RacingTransfer,
    RacingCall,
    RacingFailure,
    RacingEvent,
    RacingQuery,
    RacingSynchronize,
    // Objects that one thread hands to another.
    EmptyBin,
    // Whole devices, and the process.
    Statistics,
    SynchronizeDevice,
    Close,
    Lose,
    Fault,
    Fork,
}

/// Each kind of step with how often it comes, in relation to the others.
const WEIGHTS: &[(Kind, u32)] = &[
    (Kind::NewStream, 30),
    (Kind::DropStream, 14),
    (Kind::NewBuffer, 30),
    (Kind::DropBuffer, 14),
    (Kind::Write, 50),
    (Kind::Fill, 50),
    (Kind::Copy, 90),
    (Kind::Read, 70),
    (Kind::FinishRead, 50),
    (Kind::Call, 60),
    (Kind::Kernel, 30),
    (Kind::FailingCall, 14),
    (Kind::FailingKernel, 8),
    (Kind::Record, 25),
    (Kind::Wait, 40),
    (Kind::Query, 40),
    (Kind::Synchronize, 25),
    (Kind::SynchronizeEvent, 12),
    (Kind::BlockingWrite, 12),
    (Kind::BlockingRead, 15),
    (Kind::BlockingCopy, 15),
    (Kind::GuardedRead, 15),
    (Kind::RacingNew, 10),
    (Kind::RacingDrop, 6),
    (Kind::RacingTransfer, 40),
    (Kind::RacingCall, 15),
    (Kind::RacingFailure, 15),
    (Kind::RacingEvent, 30),
    (Kind::RacingQuery, 25),
    (Kind::RacingSynchronize, 10),
    (Kind::EmptyBin, 15),
    (Kind::Statistics, 5),
    (Kind::SynchronizeDevice, 10),
    (Kind::Close, 2),
    (Kind::Lose, 3),
    (Kind::Fault, 4),
    (Kind::Fork, 1),
];

pub(crate) struct Round {
    pub(crate) weather: Weather,
    /// The steps of each thread, in order.
    pub(crate) threads: Vec<Vec<Step>>,
}

impl Weather {
    fn of_round(number: u64, devices: usize, calm: bool) -> Self {
        match (calm, number % 5) {
            (true, even) if even % 2 == 0 => Self::Private,
            (true, _) => Self::Public,
            (false, 0) => Self::Private,
            (false, 1) => Self::Public,
            (false, 2) => Self::Loss,
            (false, 3) => Self::Close { device: (number / 5) as usize % devices },
            (false, _) => Self::Storm,
        }
    }

    fn has(self, kind: Kind, calm: bool) -> bool {
        match kind {
            Kind::SynchronizeDevice => matches!(self, Self::Public | Self::Storm),
            Kind::Close => matches!(self, Self::Close { .. } | Self::Storm),
            Kind::Lose | Kind::Fault => matches!(self, Self::Loss | Self::Storm),
            // A device that is closed reports errors of its streams, and their work is done again until it is
            // closed.
            Kind::FailingCall | Kind::FailingKernel => !matches!(self, Self::Close { .. }),
            Kind::Fork => !calm && cfg!(unix),
            _ => true,
        }
    }

    /// Whether devices go away, so that any work may fail for it.
    pub(crate) fn takes_devices(self) -> bool {
        matches!(self, Self::Loss | Self::Close { .. } | Self::Storm)
    }

    /// Whether the model of the contents holds.
    pub(crate) fn has_contents(self) -> bool {
        self != Self::Storm
    }

    /// Whether streams wait for events that may have an error, and so have the errors of other streams. If
    /// whole devices report errors too, one could not know whose error that is.
    pub(crate) fn spreads_errors(self) -> bool {
        matches!(self, Self::Private | Self::Loss)
    }

    /// Whether an error is reported to the thread that enqueued the work, and to no other.
    pub(crate) fn is_private(self) -> bool {
        matches!(self, Self::Private | Self::Loss | Self::Close { .. })
    }
}

impl Round {
    pub(crate) fn new(seed: u64, number: u64, threads: usize, devices: usize, calm: bool) -> Self {
        let weather = Weather::of_round(number, devices, calm);
        let kinds: Vec<_> = WEIGHTS.iter().filter(|(kind, _)| weather.has(*kind, calm)).collect();
        let sum: u32 = kinds.iter().map(|(_, weight)| weight).sum();
        let step = |rng: &mut Rng| -> Step {
            let mut at = rng.u32(..sum);
            let chosen = kinds.iter().find(|(_, weight)| {
                let found = at < *weight;
                at = at.saturating_sub(*weight);
                found
            });
            let kind = chosen.expect("the weights add up to the sum").0;
            Step { kind, pick: std::array::from_fn(|_| rng.usize(..1 << 16)), value: rng.u64(..) }
        };
        let step = &step;
        let thread = move |thread: usize| {
            // Neighbouring seeds and rounds have nothing in common.
            let seed =
                [number, thread as u64].iter().fold(seed, |seed, part| Rng::with_seed(seed ^ part).u64(..));
            let mut rng = Rng::with_seed(seed);
            (0..STEPS).map(|_| step(&mut rng)).collect::<Vec<_>>()
        };
        Self { weather, threads: (0..threads).map(thread).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_a_function_of_its_seed() {
        let plan = |seed, round| Round::new(seed, round, 3, 4, false).threads;
        assert_eq!(plan(1, 2), plan(1, 2));
        let first: Vec<_> =
            [plan(1, 2), plan(2, 2), plan(1, 7)].into_iter().flatten().map(|steps| steps[0]).collect();
        for (place, step) in first.iter().enumerate() {
            assert!(!first[..place].contains(step), "{step:?}");
        }
    }

    #[test]
    fn a_calm_plan_disturbs_nothing() {
        let disturbs = |kind| matches!(kind, Kind::Close | Kind::Lose | Kind::Fault | Kind::Fork);
        let kinds = |calm| {
            let rounds = (0..10).flat_map(move |round| Round::new(1, round, 4, 2, calm).threads);
            rounds.flatten().map(|step| step.kind).collect::<Vec<_>>()
        };
        assert!(!kinds(true).into_iter().any(disturbs));
        assert!(kinds(false).into_iter().any(disturbs));
    }
}
