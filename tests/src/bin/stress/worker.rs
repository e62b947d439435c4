//! One thread: does its part of the plan with streams and buffers of its own, and knows what becomes of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device_registry::{BackendError, BackendErrorKind, Device, DeviceError, HostMemory, StreamGuard};
use fastrand::Rng;

use crate::failure::{Identity, is_gone};
use crate::journal::{Cause, Failing, Interval, Journal, Reporter, StreamKey};
use crate::model::{Expected, Held, Lane, Last, Mark, Read};
use crate::plan::{Kind, Step, Weather};
use crate::scene::{Discarded, Scene, found, lock};

/// How many of each a thread has, so that they are used more than once.
const LANES: usize = 6;
const BUFFERS: usize = 10;
const READS: usize = 16;
const MARKS: usize = 12;

pub(crate) struct Worker<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) thread: usize,
    pub(crate) journal: Journal,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) buffers: Vec<Held>,
    pub(crate) reads: Vec<(Read, Expected)>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) forks: u64,
    step: usize,
    streams: u64,
}

/// The end of a step that cannot be done: there is nothing to do it with, or the error of a call.
pub(crate) enum Stop {
    Nothing,
    Error(DeviceError),
}

impl From<DeviceError> for Stop {
    fn from(error: DeviceError) -> Self {
        Self::Error(error)
    }
}

pub(crate) type Done = Result<(), Stop>;

impl<'a> Worker<'a> {
    pub(crate) fn new(scene: &'a Scene, thread: usize) -> Self {
        Self {
            scene,
            thread,
            journal: Journal::default(),
            lanes: Vec::new(),
            buffers: Vec::new(),
            reads: Vec::new(),
            marks: Vec::new(),
            forks: 0,
            step: 0,
            streams: 0,
        }
    }

    /// Does one step, and takes note of what is wrong.
    pub(crate) fn take(&mut self, number: usize, step: Step) {
        self.step = number;
        match self.attempt(step) {
            Ok(()) | Err(Stop::Nothing) => {}
            Err(Stop::Error(error)) => self.failed(&error, step),
        }
        self.buffers.retain(|held| !held.spoiled);
    }

    /// Where the thread is, for messages.
    pub(crate) fn place(&self) -> String {
        format!("round {}, thread {}, step {}", self.scene.round, self.thread, self.step)
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity::new(self.scene.round, self.thread, self.step)
    }

    pub(crate) fn new_key(&mut self) -> StreamKey {
        self.streams += 1;
        (self.thread, self.streams)
    }

    pub(crate) fn device(&self, step: Step) -> (usize, Device) {
        let place = step.pick[0] % self.scene.devices.len();
        (place, self.scene.devices[place])
    }

    /// A call returned an error that is no report: a device is gone, or something is wrong.
    fn failed(&mut self, error: &DeviceError, step: Step) {
        let out_of_memory =
            error.backend_error().is_some_and(|error| matches!(error.kind(), BackendErrorKind::OutOfMemory { .. }));
        if self.scene.expects(error) {
            self.gone(error);
        } else if !(out_of_memory && self.scene.weather.takes_devices()) {
            found(format_args!("{}, {:?}: unexpected error: {error}", self.place(), step.kind));
        }
    }

    /// A device is gone: drops what this thread has of it. What depended on it is not known any more.
    pub(crate) fn gone(&mut self, error: &DeviceError) {
        let device = match error {
            DeviceError::Closed { device, .. } | DeviceError::Call { device, .. } => *device,
            _ => return,
        };
        if matches!(error, DeviceError::Call { .. }) {
            // Another thread may be first.
            let _ = device.reset();
        }
        for lane in self.lanes.extract_if(.., |lane| lane.stream.device() == device) {
            self.journal.dropped(lane.key);
        }
        self.buffers.retain(|held| held.buffer.device() != device);
        self.buffers.iter_mut().for_each(|held| held.bytes = None);
        for lane in &mut self.lanes {
            lane.sure_call = 0;
            lane.behind.clear();
        }
        for held in &mut self.buffers {
            // Of a stream that was dropped just now.
            if matches!(held.last, Last::Lane(key) if self.lanes.iter().all(|lane| lane.key != key)) {
                held.last = Last::Nothing;
            }
        }
    }

    fn attempt(&mut self, step: Step) -> Done {
        match step.kind {
            Kind::NewStream => self.new_stream(step),
            Kind::DropStream => self.drop_stream(step),
            Kind::NewBuffer => self.new_buffer(step),
            Kind::DropBuffer => self.drop_buffer(step),
            Kind::Write | Kind::Fill => self.write(step),
            Kind::Copy => self.copy(step),
            Kind::Read => self.read(step),
            Kind::FinishRead => self.finish_read(step),
            Kind::Call => self.call(step),
            Kind::FailingCall => {
                self.call(step)?;
                // Half of them are polled for at once: while one fails is when a wrong answer is likely.
                if step.value.is_multiple_of(2) { self.query(step) } else { Ok(()) }
            }
            Kind::Kernel | Kind::FailingKernel => self.kernel(step),
            Kind::Record => self.record_mark(step),
            Kind::Wait => self.wait_for_mark(step),
            Kind::Query => self.query(step),
            Kind::Synchronize => {
                let lane = self.lane(step)?;
                self.synchronize(lane)
            }
            Kind::SynchronizeEvent => self.synchronize_event(step),
            Kind::BlockingWrite => self.blocking_write(step),
            Kind::BlockingRead => self.blocking_read(step),
            Kind::BlockingCopy => self.blocking_copy(step),
            Kind::GuardedRead => self.guarded_read(step),
            _ => self.attempt_with_others(step),
        }
    }

    /// The stream that a step chooses.
    fn lane(&self, step: Step) -> Result<usize, Stop> {
        chosen(step.pick[0], self.lanes.len())
    }

    /// The stream that a step chooses, and a buffer of its device.
    fn lane_and_buffer(&self, step: Step) -> Result<(usize, usize), Stop> {
        let lane = self.lane(step)?;
        Ok((lane, self.buffer_on(self.lanes[lane].device, step.pick[1])?))
    }

    fn buffer_on(&self, device: usize, pick: usize) -> Result<usize, Stop> {
        let of_device = |place: &usize| self.buffers[*place].device == device;
        let places: Vec<_> = (0..self.buffers.len()).filter(of_device).collect();
        Ok(places[chosen(pick, places.len())?])
    }

    fn new_stream(&mut self, step: Step) -> Done {
        let (place, device) = self.device(step);
        if self.lanes.len() >= LANES {
            return self.drop_stream(step);
        }
        let key = self.new_key();
        self.lanes.push(Lane::new(key, place, device.create_stream()?));
        Ok(())
    }

    /// Drops a stream, here or on another thread. What it has touched comes behind an event from now on.
    fn drop_stream(&mut self, step: Step) -> Done {
        let at = self.lane(step)?;
        let mark = self.record(at)?;
        let lane = self.lanes.swap_remove(at);
        if !self.spreads(&mark) {
            self.buffers.retain(|held| !matches!(held.last, Last::Lane(key) if key == lane.key));
        }
        for held in &mut self.buffers {
            if matches!(held.last, Last::Lane(key) if key == lane.key) {
                held.last = Last::Mark(mark.clone());
            }
        }
        self.journal.dropped(lane.key);
        match step.value % 3 {
            0 => lock(&self.scene.bin).push(Discarded::Stream(lane.stream)),
            1 => self.drop_in_call(Discarded::Stream(lane.stream), step)?,
            _ => drop(lane),
        }
        Ok(())
    }

    fn new_buffer(&mut self, step: Step) -> Done {
        let (place, device) = self.device(step);
        if self.buffers.len() >= BUFFERS {
            return self.drop_buffer(step);
        }
        // Mostly short, so that the streams have much work; some longer than a page and than a piece of a copy.
        let len = 16 * match step.value % 16 {
            0 => 70_000,
            1..4 => 4096,
            other => other as usize,
        };
        let buffer = device.allocate(len)?;
        self.buffers.push(Held { device: place, buffer, bytes: None, last: Last::Nothing, moved: false, spoiled: false });
        Ok(())
    }

    /// Drops a buffer, here or on another thread, though work in streams may use it.
    fn drop_buffer(&mut self, step: Step) -> Done {
        let at = chosen(step.pick[1], self.buffers.len())?;
        let held = self.buffers.swap_remove(at);
        match step.value % 3 {
            0 => lock(&self.scene.bin).push(Discarded::Buffer(held.buffer)),
            1 => self.drop_in_call(Discarded::Buffer(held.buffer), step)?,
            _ => drop(held),
        }
        Ok(())
    }

    /// Drops something within a host call, on a stream's thread.
    fn drop_in_call(&mut self, discarded: Discarded, step: Step) -> Done {
        let lane = self.lane(step)?;
        Ok(self.lanes[lane].stream.call(move || drop(discarded))?)
    }

    /// Has a stream come behind all that has touched a buffer.
    fn use_in(&mut self, at: usize, buffer: usize) -> Done {
        let key = self.lanes[at].key;
        match self.buffers[buffer].last {
            Last::Nothing => {
                self.buffers[buffer].last = Last::Lane(key);
                return Ok(());
            }
            Last::Lane(last) if last == key => return Ok(()),
            _ => {}
        }
        if !self.lanes[at].failed.is_empty() && !self.scene.weather.is_private() {
            // Whether the wait is skipped is not known: another thread may report the failure meanwhile.
            self.synchronize(at)?;
        }
        self.buffers[buffer].moved = true;
        match std::mem::replace(&mut self.buffers[buffer].last, Last::Lane(key)) {
            Last::Nothing => Ok(()),
            Last::Mark(mark) => self.wait(at, &mark),
            Last::Lane(last) => {
                let other = self.lanes.iter().position(|lane| lane.key == last);
                let other = other.expect("a stream that is dropped leaves a mark");
                let mut mark = self.record(other)?;
                if !self.spreads(&mark) {
                    self.synchronize(other)?;
                    mark = self.record(other)?;
                }
                self.wait(at, &mark)
            }
        }
    }

    /// Ends the step if a failure was reported in it for which one of the buffers is not known any more.
    fn usable(&self, buffers: &[usize]) -> Done {
        match buffers.iter().any(|&at| self.buffers[at].spoiled) {
            true => Err(Stop::Nothing),
            false => Ok(()),
        }
    }

    fn record(&self, at: usize) -> Result<Mark, DeviceError> {
        let lane = &self.lanes[at];
        let event = lane.stream.record()?;
        Ok(Mark {
            event,
            failed: lane.failed.clone(),
            behind: (Arc::clone(&lane.order), lane.sure_call),
        })
    }

    /// Whether streams may wait for an event, although it may have an error.
    fn spreads(&self, mark: &Mark) -> bool {
        mark.failed.is_empty() || self.scene.weather.spreads_errors()
    }

    fn wait(&mut self, at: usize, mark: &Mark) -> Done {
        let lane = &mut self.lanes[at];
        let (enqueued, outcome) = Interval::of(|| lane.stream.wait(&mark.event));
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

    /// What a buffer holds behind work in a stream that changes it.
    fn change(&mut self, at: usize, buffer: usize, change: impl FnOnce(&mut Option<Vec<u8>>)) {
        let (lane, held) = (&self.lanes[at], &mut self.buffers[buffer]);
        match lane.failed.is_empty() {
            _ if !self.scene.weather.has_contents() => held.bytes = None,
            true => change(&mut held.bytes),
            // It is skipped.
            false if self.scene.weather.is_private() => {}
            false => held.bytes = None,
        }
    }

    fn write(&mut self, step: Step) -> Done {
        let (lane, at) = self.lane_and_buffer(step)?;
        self.use_in(lane, at)?;
        self.usable(&[at])?;
        let (stream, buffer) = (&self.lanes[lane].stream, &self.buffers[at].buffer);
        let range = range_in(buffer.len(), step);
        let mut bytes = vec![0; range.len()];
        if step.kind == Kind::Fill {
            let pattern = &step.value.to_le_bytes()[..1 << (step.value % 4)];
            bytes.iter_mut().zip(pattern.iter().cycle()).for_each(|(byte, from)| *byte = *from);
            stream.fill(buffer, range.clone(), pattern)?;
        } else {
            Rng::with_seed(step.value).fill(&mut bytes);
            match self.scene.devices[self.lanes[lane].device].allocate_host(range.len()) {
                Ok(mut pinned) if step.value.is_multiple_of(2) => {
                    pinned.copy_from_slice(&bytes);
                    stream.write(buffer, range.start, pinned)?;
                }
                _ => stream.write(buffer, range.start, bytes.clone())?,
            }
        }
        let len = buffer.len();
        self.change(lane, at, |known| put(known, len, range.start, &bytes));
        Ok(())
    }

    fn copy(&mut self, step: Step) -> Done {
        let (lane, to) = self.lane_and_buffer(step)?;
        let from = chosen(step.pick[2], self.buffers.len())?;
        if from == to {
            return Err(Stop::Nothing);
        }
        self.use_in(lane, from)?;
        self.use_in(lane, to)?;
        self.usable(&[from, to])?;
        let (source, target) = (&self.buffers[from], &self.buffers[to]);
        let (range, offset) = ranges_of_copy(source.buffer.len(), target.buffer.len(), step);
        self.lanes[lane].stream.copy(&source.buffer, range.clone(), &target.buffer, offset)?;
        let (bytes, len) = (source.bytes.as_ref().map(|bytes| bytes[range].to_vec()), target.buffer.len());
        self.change(lane, to, |known| match bytes {
            Some(bytes) => put(known, len, offset, &bytes),
            None => *known = None,
        });
        Ok(())
    }

    fn read(&mut self, step: Step) -> Done {
        let (lane, at) = self.lane_and_buffer(step)?;
        self.use_in(lane, at)?;
        self.usable(&[at])?;
        let (lane, held) = (&self.lanes[lane], &self.buffers[at]);
        let range = range_in(held.buffer.len(), step);
        let expected = Expected {
            bytes: held.bytes.as_ref().map(|bytes| bytes[range.clone()].to_vec()),
            failed: lane.failed.clone(),
            place: self.place(),
        };
        let read = lane.stream.read(&held.buffer, range)?;
        match step.value % 8 {
            0 => drop(read),
            1 => lock(&self.scene.bin).push(Discarded::Read(read, expected)),
            _ => self.reads.push((read, expected)),
        }
        if self.reads.len() > READS { self.finish_read(step) } else { Ok(()) }
    }

    fn finish_read(&mut self, step: Step) -> Done {
        let at = chosen(step.pick[2], self.reads.len())?;
        let (mut read, expected) = self.reads.swap_remove(at);
        match step.value % 4 {
            0 => {
                read = match read.wait_timeout(Duration::from_micros(step.value % 700)) {
                    Err(read) => read,
                    Ok(result) => return self.finished(result, &expected),
                };
            }
            1 => {
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                if let std::task::Poll::Ready(result) = std::pin::pin!(&mut read).poll(&mut context) {
                    return self.finished(result, &expected);
                }
            }
            2 => while !read.is_ready() {
                std::thread::yield_now();
            },
            _ => {}
        }
        let result = read.wait();
        self.finished(result, &expected)
    }

    pub(crate) fn finished<B: std::ops::Deref<Target = [u8]>>(
        &mut self,
        read: Result<B, DeviceError>,
        expected: &Expected,
    ) -> Done {
        expected.compare(read.as_deref(), self.scene).unwrap_or_else(|wrong| found(wrong));
        match read {
            // What is known of the device is for this thread to forget too.
            Err(error) if self.scene.expects(&error) => Err(Stop::Error(error)),
            _ => Ok(()),
        }
    }

    fn call(&mut self, step: Step) -> Done {
        let (at, place, identity) = (self.lane(step)?, self.place(), self.identity());
        let fails = step.kind == Kind::FailingCall;
        let private = self.scene.weather.is_private();
        let lane = &mut self.lanes[at];
        let skipped = private && !lane.failed.is_empty();
        let (order, number, behind) = (Arc::clone(&lane.order), lane.calls + 1, lane.behind.clone());
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        let call = move || {
            runs.store(true, Ordering::SeqCst);
            if skipped {
                found(format_args!("{place}: a call that is to be skipped was run"));
            }
            order.pass(number).unwrap_or_else(|wrong| found(format_args!("{place}: {wrong}")));
            for (other, number) in behind {
                if !other.has_passed(number) {
                    found(format_args!("{place}: a call ran before call {number} of another stream, which it waits for"));
                }
            }
            if fails {
                panic!("{identity}");
            }
        };
        let (enqueued, outcome) = Interval::of(|| lane.stream.call(call));
        outcome?;
        lane.calls = number;
        if lane.failed.is_empty() && !fails && self.scene.weather != Weather::Storm {
            lane.sure_call = number;
        }
        if fails {
            self.fails(at, enqueued, ran);
        }
        Ok(())
    }

    fn fails(&mut self, at: usize, enqueued: Interval, ran: Arc<AtomicBool>) {
        let identity = self.identity();
        let lane = &mut self.lanes[at];
        lane.fails_with(&[identity]);
        let cause = Cause::Work { identity, ran };
        self.journal.failing(Failing { stream: lane.key, device: lane.device, enqueued, cause });
    }

    /// A kernel: on the cpu it adds one to each byte, elsewhere it has no work.
    fn kernel(&mut self, step: Step) -> Done {
        let (at, buffer) = self.lane_and_buffer(step)?;
        self.use_in(at, buffer)?;
        self.usable(&[buffer])?;
        let (place, identity) = (self.place(), self.identity());
        let fails = step.kind == Kind::FailingKernel;
        let adds = self.scene.devices[self.lanes[at].device].is_cpu() && !fails;
        let lane = &mut self.lanes[at];
        let (order, number) = (Arc::clone(&lane.order), lane.calls + 1);
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        let kept = lock(&self.scene.bin).pop();
        let (enqueued, outcome) = Interval::of(|| {
            lane.stream.launch(&[&self.buffers[buffer].buffer], move |launch| {
                runs.store(true, Ordering::SeqCst);
                launch.keep(kept);
                order.pass(number).unwrap_or_else(|wrong| found(format_args!("{place}: {wrong}")));
                if fails {
                    return Err(BackendError::other(identity));
                }
                if let (true, Some(span)) = (adds, &launch.spans()[0]) {
                    let mut bytes = span.memory_as::<HostMemory>()?.write(span.range())?;
                    bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                }
                Ok(())
            })
        });
        lane.calls = number;
        match outcome {
            // It was run at once.
            Err(error) if Identity::of(&error) == Some(identity) => self.journal.refused(),
            Err(error) => return Err(error.into()),
            Ok(()) if fails => self.fails(at, enqueued, ran),
            Ok(()) if adds => self.change(at, buffer, |known| {
                known.iter_mut().flatten().for_each(|byte| *byte = byte.wrapping_add(1));
            }),
            Ok(()) => {}
        }
        Ok(())
    }

    fn record_mark(&mut self, step: Step) -> Done {
        let at = self.lane(step)?;
        let mark = self.record(at)?;
        if !self.spreads(&mark) {
            return Err(Stop::Nothing);
        }
        if step.value.is_multiple_of(2) {
            lock(&self.scene.marks).push(mark.clone());
        }
        if self.marks.len() >= MARKS {
            let old = self.marks.swap_remove(step.pick[1] % MARKS);
            lock(&self.scene.bin).push(Discarded::Mark(old));
        }
        self.marks.push(mark);
        Ok(())
    }

    /// An event of this thread's or, as often, of another's.
    fn some_mark(&self, step: Step) -> Result<Mark, Stop> {
        if step.value.is_multiple_of(2) {
            return Ok(self.marks[chosen(step.pick[1], self.marks.len())?].clone());
        }
        let marks = lock(&self.scene.marks);
        Ok(marks[chosen(step.pick[1], marks.len())?].clone())
    }

    fn wait_for_mark(&mut self, step: Step) -> Done {
        let (at, mark) = (self.lane(step)?, self.some_mark(step)?);
        self.wait(at, &mark)
    }

    fn synchronize_event(&mut self, step: Step) -> Done {
        let mark = self.some_mark(step)?;
        self.synchronize_mark(&mark)
    }

    fn synchronize_mark(&mut self, mark: &Mark) -> Done {
        match mark.event.synchronize() {
            Ok(()) if self.scene.weather.is_private() && !mark.failed.is_empty() => {
                found(format_args!("{}: an event behind `{}` is well", self.place(), mark.failed[0]));
            }
            Ok(()) => mark.has_passed().unwrap_or_else(|wrong| found(format_args!("{}: {wrong}", self.place()))),
            Err(error) if Identity::of(&error).is_some_and(|identity| mark.failed.contains(&identity)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn query(&mut self, step: Step) -> Done {
        let at = self.lane(step)?;
        if self.scene.no_query {
            return self.synchronize(at);
        }
        // As programs that poll do: until all is done, be it that this takes too long.
        let polls = step.value % 2000;
        let ask = || Interval::of(|| self.lanes[at].stream.query());
        let (when, outcome) =
            (0..polls).map(|_| ask()).find(|(_, outcome)| !matches!(outcome, Ok(false))).unwrap_or_else(ask);
        match outcome {
            Ok(false) => Ok(()),
            Ok(true) => {
                let lane = &self.lanes[at];
                self.journal.clear(Reporter::Stream(lane.key), when);
                if lane.failed.is_empty() {
                    lane.has_passed().unwrap_or_else(|wrong| found(format_args!("{}: {wrong}", self.place())));
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

    fn synchronized(&mut self, at: usize, when: Interval, outcome: Result<(), DeviceError>) -> Done {
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
    fn reported(&mut self, at: usize, when: Interval, error: DeviceError) -> Done {
        let lane = &mut self.lanes[at];
        // What they were to come behind may still be under way.
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

    /// Waits for all that has touched a buffer, to use it without a stream.
    fn settle(&mut self, buffer: usize) -> Done {
        match &self.buffers[buffer].last {
            Last::Nothing => {}
            Last::Mark(mark) => {
                let mark = mark.clone();
                self.synchronize_mark(&mark)?;
            }
            Last::Lane(key) => {
                let at = self.lanes.iter().position(|lane| lane.key == *key);
                self.synchronize(at.expect("a stream that is dropped leaves a mark"))?;
            }
        }
        self.buffers[buffer].last = Last::Nothing;
        Ok(())
    }

    fn blocking_write(&mut self, step: Step) -> Done {
        let at = chosen(step.pick[1], self.buffers.len())?;
        self.settle(at)?;
        self.usable(&[at])?;
        let held = &mut self.buffers[at];
        let range = range_in(held.buffer.len(), step);
        let mut bytes = vec![0; range.len()];
        Rng::with_seed(step.value).fill(&mut bytes);
        held.buffer.write(range.start, &bytes)?;
        if self.scene.weather.has_contents() {
            put(&mut held.bytes, held.buffer.len(), range.start, &bytes);
        }
        Ok(())
    }

    fn blocking_read(&mut self, step: Step) -> Done {
        let at = chosen(step.pick[1], self.buffers.len())?;
        self.settle(at)?;
        self.usable(&[at])?;
        let held = &self.buffers[at];
        // A part of the buffer, through another handle.
        let range = range_in(held.buffer.len(), step);
        let part = held.buffer.slice(range.clone())?;
        let mut bytes = vec![0; range.len()];
        let expected = Expected {
            bytes: held.bytes.as_ref().map(|bytes| bytes[range].to_vec()),
            failed: Vec::new(),
            place: self.place(),
        };
        let read = part.read(0, &mut bytes).map(|()| bytes);
        self.finished(read, &expected)
    }

    fn blocking_copy(&mut self, step: Step) -> Done {
        let (from, to) = (chosen(step.pick[1], self.buffers.len())?, chosen(step.pick[2], self.buffers.len())?);
        if from == to {
            return Err(Stop::Nothing);
        }
        self.settle(from)?;
        self.settle(to)?;
        self.usable(&[from, to])?;
        let (source, target) = (&self.buffers[from], &self.buffers[to]);
        let (range, offset) = ranges_of_copy(source.buffer.len(), target.buffer.len(), step);
        target.buffer.copy_from(offset, &source.buffer, range.clone())?;
        let bytes = source.bytes.as_ref().map(|bytes| bytes[range].to_vec());
        let target = &mut self.buffers[to];
        match bytes {
            Some(bytes) => put(&mut target.bytes, target.buffer.len(), offset, &bytes),
            None => target.bytes = None,
        }
        Ok(())
    }

    /// A blocking read with a stream as the thread's current one: it waits for the stream, and returns its error.
    fn guarded_read(&mut self, step: Step) -> Done {
        let (at, buffer) = self.lane_and_buffer(step)?;
        self.use_in(at, buffer)?;
        self.usable(&[buffer])?;
        let held = &self.buffers[buffer];
        let mut bytes = vec![0; held.buffer.len()];
        let expected = Expected { bytes: held.bytes.clone(), failed: Vec::new(), place: self.place() };
        let guard = StreamGuard::new(&self.lanes[at].stream);
        let (when, outcome) = Interval::of(|| held.buffer.read(0, &mut bytes));
        drop(guard);
        match outcome {
            Ok(()) => {
                let read = Ok(bytes);
                self.synchronized(at, when, Ok(()))?;
                self.finished(read, &expected)
            }
            Err(error) => self.reported(at, when, error),
        }
    }
}

/// The place that a number chooses among so many.
pub(crate) fn chosen(pick: usize, len: usize) -> Result<usize, Stop> {
    pick.checked_rem(len).ok_or(Stop::Nothing)
}

/// A part of so many bytes, or all of them: in units of sixteen, to which every device copies.
fn range_in(len: usize, step: Step) -> std::ops::Range<usize> {
    let units = len / 16;
    match step.value % 5 {
        0 | 1 => 0..len,
        _ => {
            let start = step.pick[2] % units;
            let end = start + 1 + (step.value >> 8) as usize % (units - start);
            start * 16..end * 16
        }
    }
}

fn ranges_of_copy(source: usize, target: usize, step: Step) -> (std::ops::Range<usize>, usize) {
    let from = range_in(source.min(target), step);
    let offset = (step.value >> 32) as usize % ((target - from.len()) / 16 + 1) * 16;
    (from, offset)
}

/// Changes what is known of a buffer, of which all is known or nothing.
fn put(known: &mut Option<Vec<u8>>, len: usize, offset: usize, bytes: &[u8]) {
    match known {
        Some(known) => known[offset..offset + bytes.len()].copy_from_slice(bytes),
        None if bytes.len() == len => *known = Some(bytes.to_vec()),
        None => {}
    }
}
