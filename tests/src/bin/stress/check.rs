//! Whether each failure was reported once.
//!
//! The rule is that of `Stream`, "Errors in queued work". The first call that can report the first failure of
//! a stream reports it, once. The stream skips all work that was enqueued before that report.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use crate::failure::{Identity, is_gone};
use crate::journal::{Cause, Failing, Interval, Journal, Reporter, StreamKey};

/// The conditions of a check.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Devices were closed or lost: any work may have been skipped, and a failure may have been logged only.
    pub(crate) devices_ended: bool,
    /// The error of a dropped stream has to be reported: a log of it is not enough.
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
    /// Compares the failures with the reports, once all work is done.
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
    /// `None` for a wait for an event of a device that was closed or lost: it may have had an error.
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

    /// Whether `self` may have been skipped for `first`, which was reported then.
    fn may_be_skipped_for(&self, first: &Self, reported: Option<Interval>) -> bool {
        first.stream == self.stream
            && !std::ptr::eq(first, self)
            && !self.enqueued.surely_before(first.enqueued)
            && reported.is_some_and(|report| !report.surely_before(self.enqueued))
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

    /// Finds for each report the work whose error it is: first for those of streams, as those of devices may
    /// be any stream's. (Where a failure may be that of several streams, devices report only when all streams
    /// have done so.)
    fn assign_reports(&mut self) {
        self.candidates.sort_by_key(|candidate| candidate.enqueued.start);
        let mut reports = self.journal.reports.clone();
        // Of reports that overlap, the one that ends first has the fewest works to choose from.
        reports.sort_by_key(|(_, by, at)| (matches!(by, Reporter::Device(_)), at.end));
        for (identity, by, at) in reports {
            match self.find(identity, by, at) {
                Some(place) => {
                    self.candidates[place].reported = Some(at);
                    self.verdict.reported += 1;
                }
                None => {
                    if let Reporter::Stream(stream) = by {
                        self.concerned.push(stream);
                    }
                    self.verdict.wrong.push(format!(
                        "`{identity}` was reported by {by:?} at {at:?}, but no such work failed, or it was \
                         reported before"
                    ));
                }
            }
        }
    }

    /// The work whose error a report may be: the first, and rather one that explains what else is known.
    fn find(&self, identity: Identity, by: Reporter, at: Interval) -> Option<usize> {
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
                && !self.is_reported_between(candidate, at)
        };
        let known = |candidate: &Candidate| candidate.identity.is_some() && fits(candidate);
        let is_over = |candidate: &Candidate| {
            self.is_cleared_between(candidate, by, at) || self.has_more_run_between(candidate, at)
        };
        // A call that took long may have enqueued its work at its end, so it comes behind those that ended
        // before it. But the work itself comes before the waits for an event behind it.
        let first = |is_it: &dyn Fn(&Candidate) -> bool| {
            let found = self.candidates.iter().enumerate().filter(|(_, candidate)| is_it(candidate));
            found
                .min_by_key(|(_, candidate)| (candidate.is_wait, candidate.enqueued.end))
                .map(|(place, _)| place)
        };
        first(&|candidate| known(candidate) && !is_over(candidate))
            .or_else(|| first(&|candidate| fits(candidate) && !is_over(candidate)))
            .or_else(|| first(&known))
            .or_else(|| first(&fits))
    }

    /// Whether the work's own stream has reported between its enqueueing and a report, which may be its
    /// device's: that work's error, or one for which it was skipped.
    fn is_reported_between(&self, candidate: &Candidate, at: Interval) -> bool {
        let own = Reporter::Stream(candidate.stream);
        self.journal.reports.iter().any(|(_, other, when)| {
            *other == own && candidate.enqueued.surely_before(*when) && when.surely_before(at)
        })
    }

    /// Whether all was well between the enqueueing of work and a report.
    fn is_cleared_between(&self, candidate: &Candidate, by: Reporter, at: Interval) -> bool {
        let own = Reporter::Stream(candidate.stream);
        self.journal.clear.iter().any(|(other, when)| {
            (*other == by || *other == own)
                && candidate.enqueued.surely_before(*when)
                && when.surely_before(at)
        })
    }

    /// Whether work ran that was enqueued between other work and a report: that other work had been reported,
    /// or skipped.
    fn has_more_run_between(&self, candidate: &Candidate, at: Interval) -> bool {
        self.candidates.iter().any(|other| {
            other.stream == candidate.stream
                && other.ran == Some(true)
                && candidate.enqueued.surely_before(other.enqueued)
                && other.enqueued.surely_before(at)
        })
    }

    /// The events of a stream, in order.
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

    /// Waits for the same event at the same time. A report may be that of any of them.
    fn twins<'b>(&'b self, first: &'b Candidate) -> impl Iterator<Item = &'b Candidate> {
        self.candidates.iter().filter(|twin| {
            twin.is_wait
                && first.is_wait
                && twin.stream == first.stream
                && twin.identity == first.identity
                && !twin.enqueued.surely_before(first.enqueued)
                && !first.enqueued.surely_before(twin.enqueued)
        })
    }

    /// Looks for failures that were not reported.
    fn look_for_lost(&mut self, logged: &HashMap<Identity, usize>) {
        // Skipped work at last: it may have been skipped for a failure that was only logged.
        for ran in [Some(true), None, Some(false)] {
            for place in 0..self.candidates.len() {
                let candidate = &self.candidates[place];
                if candidate.reported.is_some() || candidate.ran != ran {
                    continue;
                }
                let skipped = self.rules.devices_ended
                    || self.candidates.iter().any(|first| {
                        candidate.may_be_skipped_for(first, first.reported)
                            || self
                                .twins(first)
                                .any(|twin| candidate.may_be_skipped_for(first, twin.reported))
                    });
                if ran != Some(true) && skipped {
                    self.verdict.skipped += u64::from(!candidate.is_wait);
                    continue;
                }
                let dropped = self.journal.dropped.contains(&candidate.stream) && !self.rules.strict;
                if candidate.ran != Some(false)
                    && (dropped || self.rules.devices_ended)
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

    /// Looks for work that ran although it had to be skipped.
    fn look_for_disorder(&mut self) {
        for late in self.candidates.iter().filter(|candidate| candidate.ran == Some(true)) {
            let known = |first: &&Candidate| first.reported.is_some_and(|at| at.end < u64::MAX);
            if let Some(first) = self.candidates.iter().filter(known).find(|first| late.is_skipped_for(first))
            {
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
                self.verdict.wrong.push(format!(
                    "{by:?} said at {at:?} that all is done and well, but {hidden} had failed"
                ));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use device_registry::Event;
    use device_registry::backend::BackendError;

    use super::*;

    const RULES: Rules = Rules { devices_ended: false, strict: false };
    const STREAM: StreamKey = (0, 1);
    const BY: Reporter = Reporter::Stream(STREAM);

    fn at(start: u64, end: u64) -> Interval {
        Interval { start, end }
    }

    fn identity(step: usize) -> Identity {
        Identity::new(0, 0, step)
    }

    /// A journal of one stream: work by its step, when it was enqueued and whether it was run.
    fn journal(works: &[(usize, Interval, bool)]) -> Journal {
        let mut journal = Journal::default();
        for &(step, enqueued, ran) in works {
            let cause = Cause::Work { identity: identity(step), ran: Arc::new(AtomicBool::new(ran)) };
            journal.failing(Failing { stream: STREAM, device: 0, enqueued, cause });
        }
        journal
    }

    fn wrong(journal: &Journal, rules: Rules) -> String {
        journal.check(&HashMap::new(), rules).wrong.join("\n")
    }

    #[test]
    fn a_failure_that_is_reported_once_is_right() {
        let mut journal = journal(&[(1, at(1, 2), true), (2, at(3, 4), false), (3, at(7, 8), true)]);
        journal.report(identity(1), BY, at(5, 6));
        journal.report(identity(3), Reporter::Device(0), at(9, 10));
        journal.clear(BY, at(11, 12));
        let verdict = journal.check(&HashMap::new(), RULES);
        assert_eq!(verdict.wrong, [""; 0]);
        assert_eq!((verdict.injected, verdict.reported, verdict.skipped), (3, 2, 1));
    }

    #[test]
    fn a_failure_that_nothing_reports_is_found() {
        let journal = journal(&[(1, at(1, 2), true)]);
        assert!(wrong(&journal, RULES).contains("failed, and was reported by nothing"));
    }

    #[test]
    fn a_failure_that_is_reported_twice_is_found() {
        let mut journal = journal(&[(1, at(1, 2), true)]);
        journal.report(identity(1), BY, at(3, 4));
        journal.report(identity(1), Reporter::Device(0), at(5, 6));
        assert!(wrong(&journal, RULES).contains("or it was reported before"));
    }

    #[test]
    fn work_that_vanished_and_work_that_ran_behind_a_failure_are_found() {
        assert!(wrong(&journal(&[(1, at(1, 2), false)]), RULES).contains("neither run nor skipped"));
        let mut ran = journal(&[(1, at(1, 2), true), (2, at(3, 4), true)]);
        ran.report(identity(1), BY, at(5, 6));
        assert!(wrong(&ran, RULES).contains("was run behind"));
    }

    #[test]
    fn what_overlaps_may_have_come_in_either_order() {
        for ran in [true, false] {
            let mut journal = journal(&[(1, at(1, 2), true), (2, at(4, 6), ran)]);
            journal.report(identity(1), BY, at(3, 5));
            if ran {
                journal.report(identity(2), BY, at(7, 8));
            }
            assert_eq!(wrong(&journal, RULES), "", "{ran}");
        }
    }

    #[test]
    fn a_call_that_took_long_may_have_enqueued_its_work_after_a_report() {
        let works = [(1, at(1, 10), true), (1, at(2, 3), true), (2, at(11, 12), false)];
        let mut journal = journal(&works);
        journal.report(identity(1), BY, at(4, 5));
        journal.report(identity(1), BY, at(13, 14));
        assert_eq!(wrong(&journal, RULES), "");
    }

    /// An event behind work that failed.
    fn event_behind(identity: Identity) -> Event {
        let stream = device_registry::device("cpu").unwrap().create_stream().unwrap();
        stream.launch(&[], move |_| Err(BackendError::other(identity))).unwrap();
        let event = stream.record().unwrap();
        stream.synchronize().unwrap_err();
        event
    }

    #[test]
    fn a_failure_is_that_of_the_work_before_it_is_that_of_a_wait_for_it() {
        let mut journal = journal(&[(1, at(1, 9), true)]);
        let cause = Cause::Wait(event_behind(identity(1)));
        journal.failing(Failing { stream: STREAM, device: 0, enqueued: at(3, 4), cause });
        journal.report(identity(1), BY, at(10, 11));
        assert_eq!(wrong(&journal, RULES), "");
    }

    #[test]
    fn of_waits_that_overlap_a_report_may_be_that_of_either() {
        for [first, second] in [[at(1, 9), at(4, 5)], [at(4, 5), at(1, 9)]] {
            let mut journal = journal(&[(2, at(2, 3), false)]);
            let event = event_behind(identity(1));
            for enqueued in [first, second] {
                let cause = Cause::Wait(event.clone());
                journal.failing(Failing { stream: STREAM, device: 0, enqueued, cause });
            }
            journal.report(identity(1), BY, at(10, 11));
            assert_eq!(wrong(&journal, RULES), "");
        }
    }

    #[test]
    fn work_may_be_skipped_for_a_wait_whose_error_was_only_logged() {
        let mut journal = journal(&[(2, at(2, 5), false)]);
        let cause = Cause::Wait(event_behind(identity(1)));
        journal.failing(Failing { stream: STREAM, device: 0, enqueued: at(3, 4), cause });
        journal.dropped(STREAM);
        let logged = HashMap::from([(identity(1), 1)]);
        assert_eq!(journal.check(&logged, RULES).wrong, [""; 0]);
    }

    #[test]
    fn a_stream_that_says_all_is_well_before_it_reports_a_failure_is_found() {
        let mut journal = journal(&[(1, at(1, 2), true)]);
        journal.clear(BY, at(3, 4));
        journal.report(identity(1), BY, at(5, 6));
        assert!(wrong(&journal, RULES).contains("that all is done and well, but the work"));
    }

    #[test]
    fn the_failure_of_a_dropped_stream_may_be_logged_unless_the_rules_are_strict() {
        let mut journal = journal(&[(1, at(1, 2), true)]);
        journal.dropped(STREAM);
        assert!(!wrong(&journal, RULES).is_empty(), "it is not logged either");
        let logged = HashMap::from([(identity(1), 1)]);
        assert_eq!(journal.check(&logged, RULES).wrong, [""; 0]);
        assert_eq!(journal.check(&logged, Rules { strict: true, ..RULES }).wrong.len(), 2);
    }
}
