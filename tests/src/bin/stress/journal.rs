//! What failed and what was reported, and when; and whether each failure was reported once.
//!
//! The rule is that of `Stream`, "Errors in queued work": the first failure of a stream is reported once, by whatever asks
//! first; all that was enqueued before that report is skipped. Which of two calls on two threads came first is known only
//! if one ended before the other began. Each entry therefore has an [`Interval`], and what overlaps may have come in
//! either order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device_registry::Event;

use crate::failure::{Identity, is_gone};

/// A call, from before it to after it, by a clock that all threads share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    start: u64,
    end: u64,
}

static CLOCK: AtomicU64 = AtomicU64::new(1);

fn now() -> u64 {
    CLOCK.fetch_add(1, Ordering::SeqCst)
}

impl Interval {
    /// The time of a call, and what it returns.
    pub(crate) fn of<T>(call: impl FnOnce() -> T) -> (Self, T) {
        let start = now();
        let value = call();
        (Self { start, end: now() }, value)
    }

    const NEVER: Self = Self { start: u64::MAX, end: u64::MAX };

    fn surely_before(self, other: Self) -> bool {
        self.end < other.start
    }
}

/// A stream, by the thread that made it and its number there.
pub(crate) type StreamKey = (usize, u64);

/// Work that may fail.
pub(crate) struct Failing {
    pub(crate) stream: StreamKey,
    pub(crate) device: usize,
    pub(crate) enqueued: Interval,
    pub(crate) cause: Cause,
}

pub(crate) enum Cause {
    /// A call or a kernel that fails, and whether it was run.
    Work { identity: Identity, ran: Arc<AtomicBool> },
    /// A wait for an event, which fails if the event has an error.
    Wait(Event),
}

/// What returned an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reporter {
    Stream(StreamKey),
    /// One of the device's streams, by its place in the list of devices.
    Device(usize),
}

#[derive(Default)]
pub(crate) struct Journal {
    failing: Vec<Failing>,
    reports: Vec<(Identity, Reporter, Interval)>,
    /// Times when a stream or device said that all is well.
    clear: Vec<(Reporter, Interval)>,
    /// Streams that were dropped while others could have reported their errors.
    dropped: HashSet<StreamKey>,
    /// Work that was refused with its own error, and never enqueued.
    refused: u64,
}

/// What the rules depend on.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Devices were closed or lost, for which any work may have been skipped.
    pub(crate) devices_went: bool,
    /// It is not enough to log the error of a dropped stream.
    pub(crate) strict: bool,
}

#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) injected: u64,
    pub(crate) refused: u64,
    pub(crate) skipped: u64,
    pub(crate) reported: u64,
    pub(crate) only_logged: u64,
    pub(crate) wrong: Vec<String>,
}

impl Journal {
    pub(crate) fn failing(&mut self, failing: Failing) {
        self.failing.push(failing);
    }

    pub(crate) fn refused(&mut self) {
        self.refused += 1;
    }

    pub(crate) fn report(&mut self, identity: Identity, by: Reporter, at: Interval) {
        self.reports.push((identity, by, at));
    }

    pub(crate) fn clear(&mut self, by: Reporter, at: Interval) {
        self.clear.push((by, at));
    }

    pub(crate) fn dropped(&mut self, stream: StreamKey) {
        self.dropped.insert(stream);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.failing.extend(other.failing);
        self.reports.extend(other.reports);
        self.clear.extend(other.clear);
        self.dropped.extend(other.dropped);
        self.refused += other.refused;
    }

    /// Compares what failed with what was reported. All work is done, and all reports are in.
    pub(crate) fn check(&self, logged: &HashMap<Identity, usize>, rules: Rules) -> Verdict {
        let mut check = Check {
            journal: self,
            candidates: self.failing.iter().filter_map(Candidate::new).collect(),
            verdict: Verdict { refused: self.refused, ..Verdict::default() },
            rules,
            concerned: Vec::new(),
        };
        check.verdict.injected = self.refused + check.works().count() as u64;
        check.assign_reports();
        check.look_for_lost(logged);
        check.look_for_disorder();
        check.look_for_false_clears();
        if let Some(first) = check.concerned.first() {
            let history = check.history(*first);
            check.verdict.wrong.push(history);
        }
        check.verdict
    }
}

/// Work that failed, or was skipped where it would have failed.
struct Candidate {
    /// Not known of a wait for an event of a device that is gone, which may have had an error.
    identity: Option<Identity>,
    stream: StreamKey,
    device: usize,
    enqueued: Interval,
    is_wait: bool,
    /// Whether it was run, where that is known.
    ran: Option<bool>,
    reported: Option<Interval>,
}

impl Candidate {
    fn new(failing: &Failing) -> Option<Self> {
        let (identity, ran) = match &failing.cause {
            Cause::Work { identity, ran } => (Some(*identity), Some(ran.load(Ordering::SeqCst))),
            Cause::Wait(event) => match event.query() {
                Err(error) if is_gone(&error) => (None, None),
                Err(error) => (Some(Identity::of(&error)?), None),
                Ok(_) => return None,
            },
        };
        let Failing { stream, device, enqueued, .. } = *failing;
        Some(Self { identity, stream, device, enqueued, is_wait: ran.is_none(), ran, reported: None })
    }

    /// Whether `self` has surely been skipped for `first`, which was enqueued before and reported after it.
    fn is_skipped_for(&self, first: &Self) -> bool {
        first.stream == self.stream
            && first.identity.is_some()
            && first.enqueued.surely_before(self.enqueued)
            && first.reported.is_some_and(|report| self.enqueued.surely_before(report))
    }

    /// Whether `self` may have been skipped for `first`.
    fn may_be_skipped_for(&self, first: &Self) -> bool {
        first.stream == self.stream
            && !std::ptr::eq(first, self)
            && !self.enqueued.surely_before(first.enqueued)
            && first.reported.is_some_and(|report| !report.surely_before(self.enqueued))
    }
}

struct Check<'a> {
    journal: &'a Journal,
    candidates: Vec<Candidate>,
    verdict: Verdict,
    rules: Rules,
    /// The streams of which something is wrong.
    concerned: Vec<StreamKey>,
}

impl Check<'_> {
    fn works(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.iter().filter(|candidate| !candidate.is_wait)
    }

    /// Finds for each report the work whose error it is: first for those of streams, as those of devices may be any
    /// stream's. (Where a failure may be that of several streams, devices report only when all streams have done so.)
    fn assign_reports(&mut self) {
        self.candidates.sort_by_key(|candidate| candidate.enqueued.start);
        let mut reports = self.journal.reports.clone();
        reports.sort_by_key(|(_, by, at)| (matches!(by, Reporter::Device(_)), at.end));
        // What was enqueued before a report is what that reports, or is skipped.
        let reported_between = |candidate: &Candidate, by, at: Interval| {
            let between =
                |other: &Interval| candidate.enqueued.surely_before(*other) && other.surely_before(at);
            // A device reports the error of one stream, and leaves those of the others.
            matches!(by, Reporter::Stream(_))
                && self.journal.reports.iter().any(|(_, other, when)| *other == by && between(when))
        };
        let cleared_between = |candidate: &Candidate, by, at: Interval| {
            let between =
                |other: &Interval| candidate.enqueued.surely_before(*other) && other.surely_before(at);
            self.journal.clear.iter().any(|(other, when)| *other == by && between(when))
        };
        for (identity, by, at) in reports {
            let fits = |candidate: &Candidate| {
                candidate.identity.is_none_or(|its| its == identity)
                    && candidate.reported.is_none()
                    && candidate.ran != Some(false)
                    && !at.surely_before(candidate.enqueued)
                    && match by {
                        Reporter::Stream(stream) => candidate.stream == stream,
                        Reporter::Device(device) => candidate.device == device,
                    }
                    && !self.candidates.iter().any(|first| candidate.is_skipped_for(first))
                    && !reported_between(candidate, by, at)
            };
            let known = |candidate: &Candidate| candidate.identity.is_some() && fits(candidate);
            let likely = |candidate: &Candidate| known(candidate) && !cleared_between(candidate, by, at);
            let all = || self.candidates.iter();
            let guessed = |candidate: &Candidate| fits(candidate) && !cleared_between(candidate, by, at);
            match all().position(likely).or_else(|| all().position(guessed)).or_else(|| all().position(known)) {
                Some(place) => {
                    self.candidates[place].reported = Some(at);
                    self.verdict.reported += 1;
                }
                None => {
                    if let Reporter::Stream(stream) = by {
                        self.concerned.push(stream);
                    }
                    self.verdict.wrong.push(format!(
                        "`{identity}` was reported by {by:?} at {at:?}, but no such work failed, or it was reported before"
                    ));
                }
            }
        }
    }

    /// What happened to a stream, in order.
    fn history(&self, stream: StreamKey) -> String {
        let candidates = self.candidates.iter().filter(|candidate| candidate.stream == stream);
        let device = candidates.clone().next().map(|candidate| candidate.device);
        let concerns = |by: &Reporter| match *by {
            Reporter::Stream(other) => other == stream,
            Reporter::Device(other) => Some(other) == device,
        };
        let failed = candidates.map(|candidate| {
            let ran = match candidate.ran {
                Some(true) => "run",
                Some(false) => "not run",
                None => "a wait",
            };
            (candidate.enqueued, format!("enqueues `{}` ({ran})", described_identity(candidate.identity)))
        });
        let reports = self.journal.reports.iter().filter(|(_, by, _)| concerns(by));
        let reports = reports.map(|(identity, by, at)| (*at, format!("{by:?} reports `{identity}`")));
        let clear = self.journal.clear.iter().filter(|(by, _)| concerns(by));
        let clear = clear.map(|(by, at)| (*at, format!("{by:?} says that all is well")));
        let mut lines: Vec<_> = failed.chain(reports).chain(clear).collect();
        lines.sort_by_key(|(at, _)| at.start);
        let lines = lines.iter().map(|(at, line)| format!("\n    {}..{}: {line}", at.start, at.end));
        format!("the history of stream {stream:?}:{}", lines.collect::<String>())
    }

    /// What failed and was not reported.
    fn look_for_lost(&mut self, logged: &HashMap<Identity, usize>) {
        for surely_ran in [true, false] {
            for place in 0..self.candidates.len() {
                let candidate = &self.candidates[place];
                if candidate.reported.is_some() || (candidate.ran == Some(true)) != surely_ran {
                    continue;
                }
                let skipped = self.rules.devices_went
                    || self.candidates.iter().any(|first| candidate.may_be_skipped_for(first));
                if !surely_ran && skipped {
                    self.verdict.skipped += u64::from(!candidate.is_wait);
                    continue;
                }
                let dropped = self.journal.dropped.contains(&candidate.stream) && !self.rules.strict;
                if candidate.ran != Some(false)
                    && (dropped || self.rules.devices_went)
                    && candidate.identity.is_some_and(|identity| logged.contains_key(&identity))
                {
                    self.candidates[place].reported = Some(Interval::NEVER);
                    self.verdict.only_logged += 1;
                    continue;
                }
                let became = match candidate.ran {
                    Some(false) => "was neither run nor skipped for an earlier failure",
                    _ => "failed, and was reported by nothing",
                };
                self.verdict.wrong.push(format!("{} {became}", candidate.described()));
                self.concerned.push(candidate.stream);
            }
        }
    }

    /// What was run although it had to be skipped.
    fn look_for_disorder(&mut self) {
        for late in self.candidates.iter().filter(|candidate| candidate.ran == Some(true)) {
            let known = |first: &&Candidate| first.reported.is_some_and(|at| at.end < u64::MAX);
            if let Some(first) = self.candidates.iter().filter(known).find(|first| late.is_skipped_for(first)) {
                self.concerned.push(late.stream);
                let (late, first) = (late.described(), first.described());
                self.verdict.wrong.push(format!("{late} was run behind {first}"));
            }
        }
    }

    /// Times when a stream or a device said that all is well, and it was not.
    fn look_for_false_clears(&mut self) {
        for (by, at) in &self.journal.clear {
            let concerned = |candidate: &&Candidate| match *by {
                Reporter::Stream(stream) => candidate.stream == stream,
                Reporter::Device(device) => {
                    candidate.device == device && !self.journal.dropped.contains(&candidate.stream)
                }
            };
            let hidden = self.candidates.iter().filter(concerned).find(|candidate| {
                candidate.identity.is_some()
                    && candidate.enqueued.surely_before(*at)
                    && candidate.reported.is_some_and(|report| at.surely_before(report))
            });
            if let Some(hidden) = hidden {
                self.concerned.push(hidden.stream);
                let hidden = hidden.described();
                self.verdict
                    .wrong
                    .push(format!("{by:?} said at {at:?} that all is done and well, but {hidden} had failed"));
            }
        }
    }
}

fn described_identity(identity: Option<Identity>) -> String {
    identity.map_or("of an error that is not known".into(), |identity| identity.to_string())
}

impl Candidate {
    fn described(&self) -> String {
        let Self { identity, stream, enqueued, reported, is_wait, .. } = self;
        let what = if *is_wait { "a wait for an event with the error" } else { "the work" };
        let identity = described_identity(*identity);
        format!("{what} `{identity}` (stream {stream:?}, enqueued {enqueued:?}, reported {reported:?})")
    }
}
