//! How a thread waits: for events, in a stream and by itself, and for its own streams, which report their
//! errors then.

use std::sync::Arc;

use device_registry::DeviceError;

use crate::failure::{Identity, is_gone};
use crate::journal::{Cause, Failing, Interval, Reporter};
use crate::model::{Held, Last, Mark};
use crate::plan::Step;
use crate::scene::{Discarded, found};
use crate::worker::{Done, Stop, Worker, chosen};

/// How many events a thread keeps.
const MARKS: usize = 12;

impl Worker<'_> {
    pub(crate) fn record(&self, at: usize) -> Result<Mark, DeviceError> {
        let lane = &self.lanes[at];
        let event = lane.stream.record()?;
        Ok(Mark { event, failed: lane.failed.clone(), behind: (Arc::clone(&lane.order), lane.sure_call) })
    }

    /// Whether streams may wait for an event, although it may have an error.
    pub(crate) fn spreads(&self, mark: &Mark) -> bool {
        mark.failed.is_empty() || self.scene.weather.spreads_errors()
    }

    pub(crate) fn wait(&mut self, at: usize, mark: &Mark) -> Done {
        let lane = &mut self.lanes[at];
        let (enqueued, outcome) = Interval::of(|| lane.stream.wait_event(&mark.event));
        outcome?;
        if !mark.failed.is_empty() {
            let cause = Cause::Wait(mark.event.clone());
            self.journal.failing(Failing { stream: lane.key, device: lane.device, enqueued, cause });
        }
        if lane.failed.is_empty() {
            lane.behind.push(mark.behind.clone());
        }
        lane.fails_with(&mark.failed);
        let excess = lane.behind.len().saturating_sub(8);
        lane.behind.drain(..excess);
        Ok(())
    }

    pub(crate) fn record_mark(&mut self, step: Step) -> Done {
        let at = self.lane(step)?;
        let mark = self.record(at)?;
        if !self.spreads(&mark) {
            return Err(Stop::Nothing);
        }
        if step.value.is_multiple_of(2) {
            self.scene.marks.lock().push(mark.clone());
        }
        if self.marks.len() >= MARKS {
            let old = self.marks.swap_remove(step.pick[1] % MARKS);
            self.scene.bin.lock().push(Discarded::Mark(old));
        }
        self.marks.push(mark);
        Ok(())
    }

    /// An event of this thread's or, as often, of another's.
    pub(crate) fn some_mark(&self, step: Step) -> Result<Mark, Stop> {
        if step.value.is_multiple_of(2) {
            return Ok(self.marks[chosen(step.pick[1], self.marks.len())?].clone());
        }
        let marks = self.scene.marks.lock();
        Ok(marks[chosen(step.pick[1], marks.len())?].clone())
    }

    pub(crate) fn wait_for_mark(&mut self, step: Step) -> Done {
        let (at, mark) = (self.lane(step)?, self.some_mark(step)?);
        self.wait(at, &mark)
    }

    pub(crate) fn synchronize_event(&mut self, step: Step) -> Done {
        let mark = self.some_mark(step)?;
        self.synchronize_mark(&mark)
    }

    pub(crate) fn synchronize_mark(&mut self, mark: &Mark) -> Done {
        match mark.event.synchronize() {
            Ok(()) if self.scene.weather.is_private() && !mark.failed.is_empty() => {
                found(format_args!("{}: an event behind `{}` is well", self.place(), mark.failed[0]));
            }
            Ok(()) => {
                mark.has_passed().unwrap_or_else(|wrong| found(format_args!("{}: {wrong}", self.place())))
            }
            Err(error) if Identity::of(&error).is_some_and(|identity| mark.failed.contains(&identity)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    pub(crate) fn query(&mut self, step: Step) -> Done {
        let at = self.lane(step)?;
        if self.scene.no_query {
            return self.synchronize(at);
        }
        // As programs that poll do: until all is done, be it that this takes too long.
        let polls = step.value % 2000;
        let poll = || Interval::of(|| self.lanes[at].stream.query());
        let (when, outcome) = (0..polls)
            .map(|_| poll())
            .find(|(_, outcome)| !matches!(outcome, Ok(false)))
            .unwrap_or_else(poll);
        match outcome {
            Ok(false) => Ok(()),
            Ok(true) => {
                let lane = &self.lanes[at];
                self.journal.clear(Reporter::Stream(lane.key), when);
                if lane.failed.is_empty() {
                    lane.has_passed()
                        .unwrap_or_else(|wrong| found(format_args!("{}: {wrong}", self.place())));
                }
                self.synchronize(at)
            }
            Err(error) => self.reported(at, when, error),
        }
    }

    pub(crate) fn synchronize(&mut self, at: usize) -> Done {
        let (when, outcome) = Interval::of(|| self.lanes[at].stream.synchronize());
        self.synchronized(at, when, outcome)
    }

    pub(crate) fn synchronized(
        &mut self,
        at: usize,
        when: Interval,
        outcome: Result<(), DeviceError>,
    ) -> Done {
        let place = self.place();
        let lane = &mut self.lanes[at];
        match outcome {
            Ok(()) => {
                lane.failed.clear();
                let is_its = |held: &&mut Held| matches!(held.last, Last::Lane(key) if key == lane.key);
                self.buffers.iter_mut().filter(is_its).for_each(|held| held.moved = false);
                self.journal.clear(Reporter::Stream(lane.key), when);
                lane.has_passed().unwrap_or_else(|wrong| found(format_args!("{place}: {wrong}")));
                Ok(())
            }
            Err(error) => self.reported(at, when, error),
        }
    }

    /// A stream has returned an error of its work.
    pub(crate) fn reported(&mut self, at: usize, when: Interval, error: DeviceError) -> Done {
        let lane = &mut self.lanes[at];
        // The work before them may not be done.
        for held in &mut self.buffers {
            held.spoiled |= held.moved && matches!(held.last, Last::Lane(key) if key == lane.key);
        }
        if let Some(identity) = Identity::of(&error).filter(|_| !is_gone(&error)) {
            self.journal.report(identity, Reporter::Stream(lane.key), when);
            lane.failed.clear();
            return Ok(());
        }
        lane.failed.clear();
        Err(error.into())
    }
}
