//! One thread: does its part of the plan with streams and buffers of its own, and knows what becomes of them.

use device_registry::{BackendErrorKind, Device, DeviceError, Pending};

use crate::failure::Identity;
use crate::journal::{Journal, StreamKey};
use crate::model::{Expected, Held, Lane, Last, Mark};
use crate::plan::{Kind, Step};
use crate::scene::{Discarded, Scene, found};

/// How many of each a thread has, so that they are used more than once.
const LANES: usize = 6;
const BUFFERS: usize = 10;

pub(crate) struct Worker<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) thread: usize,
    pub(crate) journal: Journal,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) buffers: Vec<Held>,
    pub(crate) reads: Vec<(Pending, Expected)>,
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

    /// A call returned an error that is no report: a device was closed or lost, or something is wrong.
    fn failed(&mut self, error: &DeviceError, step: Step) {
        let out_of_memory = error
            .backend_error()
            .is_some_and(|error| matches!(error.kind(), BackendErrorKind::OutOfMemory { .. }));
        if self.scene.expects(error) {
            self.device_ended(error);
        } else if !(out_of_memory && self.scene.weather.takes_devices()) {
            found(format_args!("{}, {:?}: unexpected error: {error}", self.place(), step.kind));
        }
    }

    /// A device was closed or lost: drops what this thread has of it. The contents that depend on it are
    /// unknown now.
    pub(crate) fn device_ended(&mut self, error: &DeviceError) {
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
        // Of a stream that was dropped just now. It read the buffer behind work of other streams, which may
        // still be under way.
        let lanes = &self.lanes;
        let is_gone =
            |last: &Last| matches!(last, Last::Lane(key) if lanes.iter().all(|lane| lane.key != *key));
        self.buffers.retain(|held| !is_gone(&held.last));
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
                // Polls at once for half of them: a wrong result is most likely while one fails.
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
    pub(crate) fn lane(&self, step: Step) -> Result<usize, Stop> {
        chosen(step.pick[0], self.lanes.len())
    }

    /// The stream that a step chooses, and a buffer of its device.
    pub(crate) fn lane_and_buffer(&self, step: Step) -> Result<(usize, usize), Stop> {
        let lane = self.lane(step)?;
        Ok((lane, self.buffer_on(self.lanes[lane].device, step.pick[1])?))
    }

    pub(crate) fn buffer_on(&self, device: usize, pick: usize) -> Result<usize, Stop> {
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
            0 => self.scene.bin.lock().push(Discarded::Stream(lane.stream)),
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
        // Mostly short, so that the streams have much work; some longer than a page and than a piece of a
        // copy.
        let len = 16
            * match step.value % 16 {
                0 => 70_000,
                1..4 => 4096,
                other => other as usize,
            };
        let buffer = device.allocate(len)?;
        self.buffers.push(Held {
            device: place,
            buffer,
            bytes: None,
            last: Last::Nothing,
            moved: false,
            spoiled: false,
        });
        Ok(())
    }

    /// Drops a buffer, here or on another thread, though work in streams may use it.
    fn drop_buffer(&mut self, step: Step) -> Done {
        let at = chosen(step.pick[1], self.buffers.len())?;
        let held = self.buffers.swap_remove(at);
        match step.value % 3 {
            0 => self.scene.bin.lock().push(Discarded::Buffer(held.buffer)),
            1 => self.drop_in_call(Discarded::Buffer(held.buffer), step)?,
            _ => drop(held),
        }
        Ok(())
    }

    /// Drops something within a host call, on a stream's thread.
    pub(crate) fn drop_in_call(&mut self, discarded: Discarded, step: Step) -> Done {
        let lane = self.lane(step)?;
        Ok(self.lanes[lane].stream.host_call(move || drop(discarded))?)
    }
}

/// The place that a number chooses among so many.
pub(crate) fn chosen(pick: usize, len: usize) -> Result<usize, Stop> {
    pick.checked_rem(len).ok_or(Stop::Nothing)
}
