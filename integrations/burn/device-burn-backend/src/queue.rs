//! The stream of a device in which all of burn's work is enqueued, and its known failures.
//!
//! A kernel runs after the call that enqueued it has returned. If it fails, the stream skips the work behind
//! it, until the failure is reported; it does not say which work failed first. So each kernel has a number,
//! and a reported failure holds for all numbers since the last that is known to have succeeded: so a tensor
//! that was not written is never read. See [`Unwritten`].
//!
//! The queue reports failures under its lock, so that no other thread enqueues work before the failed work is
//! known.

use std::sync::{Arc, OnceLock};

use device_kernels::RunError;
use device_registry::backend::BackendError;
use device_registry::{
    BackendErrorKind, Buffer, Device, DeviceError, DeviceKind, Event, EventOptions, HostBuffer, Stream,
};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::failure::Failure;
use crate::fallback;
use crate::operation::Work;
use crate::step::{Memory, Step};
use crate::unwritten::{Output, Unwritten, Why};

/// How many bytes of new memory are enqueued before the program waits for the work of as many bytes before.
const AHEAD: usize = 256 << 20;

/// The same on a device that computes on the host: few enough that a step finds the previous step's memory,
/// and more than enough to keep the stream's threads busy.
const AHEAD_ON_HOST: usize = 16 << 20;

/// What an operation takes in the queue in addition to its memory, in bytes: about as much, so that small
/// operations count too.
const OPERATION: usize = 4 << 10;

/// The queue of one device.
pub(crate) struct BurnQueue {
    device: Device,
    /// How many bytes the program may be ahead before it waits, once the kind of device is known.
    limit: OnceLock<usize>,
    state: Mutex<State>,
    unwritten: Arc<Unwritten>,
}

#[derive(Default)]
struct State {
    stream: Option<Stream>,
    /// The opening of the device that the stream belongs to.
    epoch: u64,
    /// The number of the next kernel.
    next: u64,
    /// It is known whether kernels below this number have succeeded.
    settled: u64,
    /// The end of the kernels that the last reported failure holds for.
    reported: Option<u64>,
    /// The bytes of memory enqueued since `milestone`.
    ahead: usize,
    milestone: Option<Event>,
}

/// The work that wrote a memory, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    epoch: u64,
    /// `None` for an upload, which no failure of queued work reaches.
    number: Option<u64>,
}

/// Why a memory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// The bytes are lost, unless the host has them.
    #[error("the data was on {0}, which has been reset or closed since: compute it again, or load it")]
    Stale(Device),
    /// The kernel that was to write it failed or was skipped.
    #[error(transparent)]
    Unwritten(BackendError),
    /// A kernel was not enqueued.
    #[error(transparent)]
    Kernel(RunError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An operation that waited failed when it ran.
    #[error("{0}")]
    Failed(Failure),
}

impl Refused {
    /// Whether the device has no memory left.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Device(error) => matches!(error.kind(), Some(BackendErrorKind::OutOfMemory { .. })),
            _ => false,
        }
    }
}

/// Memory of the device, and which work wrote it.
pub(crate) type Written = (Buffer, Ticket);

/// Where kernels write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// New memory of this length, in bytes.
    New(usize),
    /// The memory of the input at this place, which nothing else uses.
    InPlace(usize),
}

impl BurnQueue {
    /// The queue of `device`. Calls nothing of its backend.
    pub(crate) fn new(device: Device) -> Self {
        Self { device, limit: OnceLock::new(), state: Mutex::default(), unwritten: Arc::default() }
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// How many bytes the program may be ahead. Queries the device, so no lock may be held.
    fn limit(&self) -> usize {
        if let Some(limit) = self.limit.get() {
            return *limit;
        }
        // A device that does not open returns its error when work is enqueued.
        let Ok(properties) = self.device.properties() else { return AHEAD };
        let is_host = matches!(properties.kind, DeviceKind::Cpu | DeviceKind::Simulated);
        *self.limit.get_or_init(|| if is_host { AHEAD_ON_HOST } else { AHEAD })
    }

    /// Memory with `bytes`. Blocks until the device has them.
    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<(Buffer, Ticket), DeviceError> {
        let epoch = self.state.lock().epoch;
        // The memory is not the stream's: the write would wait for the work that still uses it.
        let buffer = self.device.allocate(bytes.len())?;
        buffer.write(0, bytes)?;
        Ok((buffer, Ticket { epoch, number: None }))
    }

    /// Enqueues kernels, one after the other, that write `outputs`. The second result is the work that the
    /// program has to wait for, if it is twice [`AHEAD`] ahead of the device, or [`AHEAD_ON_HOST`].
    ///
    /// A device that was reset or closed is opened again. Then memories from before are [`Refused::Stale`].
    pub(crate) fn run(
        &self,
        work: &Work,
        steps: &[Step],
        inputs: &[Option<Written>],
        outputs: &[Target],
    ) -> Result<(SmallVec<[Written; 2]>, Option<Event>), Refused> {
        let limit = self.limit();
        self.enqueue(|stream, state| {
            let outs = outputs.iter().map(|target| match *target {
                Target::New(len) => Ok(stream.allocate(len)?),
                Target::InPlace(place) => {
                    let input = inputs.get(place).and_then(Option::as_ref);
                    let missing = || Refused::Unwritten(BackendError::other("no memory to write to"));
                    input.map(|(buffer, _)| buffer.clone()).ok_or_else(missing)
                }
            });
            let outs = outs.collect::<Result<SmallVec<[Buffer; 2]>, Refused>>()?;
            let used = inputs.iter().flatten();
            used.clone().try_for_each(|(_, written)| self.check(state, *written))?;
            let mut written: SmallVec<[Option<u64>; 2]> = outs.iter().map(|_| None).collect();
            for step in steps {
                let number = state.next;
                // Also if the stream refuses it: the number then belongs to a kernel that never ran.
                state.next += 1;
                let mut buffers = SmallVec::<[&Buffer; 4]>::new();
                let mut numbers = SmallVec::<[u64; 4]>::new();
                for memory in &step.memory {
                    let (buffer, number) = match *memory {
                        Memory::Input(place) => {
                            let (buffer, ticket) =
                                inputs[place].as_ref().expect("a step uses what was uploaded");
                            (buffer, ticket.number)
                        }
                        Memory::Output(place) => (&outs[place], written[place]),
                    };
                    buffers.push(buffer);
                    numbers.extend(number);
                }
                let prepared = step.planned.with_buffers(&buffers).map_err(Refused::Kernel)?;
                let Some(prepared) = prepared else { continue };
                let output = Output::new(number, &self.unwritten);
                let work = work.clone();
                stream.launch_with(&prepared.launch_options(), &buffers, move |launch| {
                    output.write(numbers, || {
                        let launched = fallback::isolate(|| prepared.launch(launch));
                        let panicked =
                            |panic| Err(BackendError::other(format_args!("the kernel panicked: {panic}")));
                        // When it is reported, only the kernel knows whose failure it was.
                        launched.unwrap_or_else(panicked).map_err(|error| {
                            let message = format_args!("{work}, {}", prepared.call());
                            BackendError::new(error.kind(), message).with_source(error)
                        })
                    })
                })?;
                for memory in &step.memory {
                    if let Memory::Output(place) = *memory {
                        written[place] = Some(number);
                    }
                }
            }
            let new = outputs.iter().map(|target| match target {
                Target::New(len) => *len,
                Target::InPlace(_) => 0,
            });
            let earlier = state.advance(stream, limit, OPERATION + new.sum::<usize>());
            let ticket = |number| Ticket { epoch: state.epoch, number };
            let outs = outs.into_iter().zip(written).map(|(out, number)| (out, ticket(number)));
            Ok((outs.collect(), earlier))
        })
    }

    /// Calls `work` with the stream. Opens a device again that was reset or closed.
    fn enqueue<T>(
        &self,
        mut work: impl FnMut(&Stream, &mut State) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let mut state = self.state.lock();
        let mut reopened = false;
        loop {
            let stream = match &state.stream {
                Some(stream) => stream.clone(),
                None => {
                    let stream = self.device.create_stream()?;
                    state.stream = Some(stream.clone());
                    stream
                }
            };
            // A stream of a device that was reset or closed refuses all work.
            match work(&stream, &mut state) {
                Err(Refused::Device(error)) if !reopened && self.is_stale(&error) => {
                    self.reopen(&mut state);
                    reopened = true;
                }
                result => return result,
            }
        }
    }

    /// The bytes of a memory that the work of `ticket` wrote. Blocks.
    pub(crate) fn download(&self, buffer: &Buffer, ticket: Ticket) -> Result<HostBuffer, Refused> {
        let mut again = false;
        loop {
            let (pending, end) = self.enqueue(|stream, state| {
                self.check(state, ticket)?;
                Ok((stream.read(buffer, ..)?, state.next))
            })?;
            match pending.wait() {
                Ok(bytes) => {
                    let mut state = self.state.lock();
                    self.check(&mut state, ticket)?;
                    state.settle(ticket.epoch, end);
                    return Ok(bytes);
                }
                // A second failure of the copy itself is not of other work.
                Err(error) if again && is_read(&error) => return Err(Refused::Device(error)),
                Err(error) => {
                    again |= is_read(&error);
                    self.report(error)?;
                }
            }
            // Later work than the ticket's has failed, or the check above finds it.
            self.check(&mut self.state.lock(), ticket)?;
        }
    }

    /// An event with a timestamp behind the work that is enqueued. `None` if the device has none.
    pub(crate) fn record_timed(&self) -> Result<Option<Event>, Refused> {
        if !self.device.properties()?.timed_events {
            return Ok(None);
        }
        let options = EventOptions::new().timed();
        self.enqueue(|stream, _| Ok(Some(stream.record_with(&options)?)))
    }

    /// Waits for all work. Blocks.
    ///
    /// # Errors
    ///
    /// The first failure that no call has returned. Closing a device returns its own.
    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        let (stream, epoch, end) = {
            let state = self.state.lock();
            let Some(stream) = state.stream.clone() else { return Ok(()) };
            (stream, state.epoch, state.next)
        };
        // An event reports nothing: the report below is under the lock, so that no thread enqueues or reads
        // in between.
        let waited = stream.record().and_then(|event| event.synchronize());
        let mut state = self.state.lock();
        if state.epoch != epoch {
            return Ok(());
        }
        let Err(error) = waited else {
            state.settle(epoch, end);
            return Ok(());
        };
        match stream.query() {
            Err(error) => {
                let closed = matches!(error, DeviceError::Closed { .. });
                if self.is_stale(&error) {
                    self.reopen(&mut state);
                } else {
                    self.fail(&mut state, error.clone());
                }
                if closed { Ok(()) } else { Err(error) }
            }
            // Another call has returned it.
            Ok(_) if state.settled >= end => Ok(()),
            Ok(_) => {
                self.fail(&mut state, error.clone());
                Err(error)
            }
        }
    }

    /// Asks the stream for a failure that it has not reported yet, after `error` has come from a read.
    fn report(&self, error: DeviceError) -> Result<(), Refused> {
        let (stream, epoch) = {
            let state = self.state.lock();
            let Some(stream) = state.stream.clone() else { return Ok(()) };
            (stream, state.epoch)
        };
        // A read returns its failure before its stream has it. An event behind the read is past both.
        let _ = stream.record().and_then(|event| event.synchronize());
        let mut state = self.state.lock();
        if state.epoch != epoch {
            return Ok(());
        }
        match stream.query() {
            Err(first) => {
                self.fail(&mut state, first);
                Ok(())
            }
            // Another thread has reported it.
            Ok(_) if state.reported == Some(state.next) => Ok(()),
            Ok(_) if state.reported.is_none() => Err(Refused::Device(error)),
            Ok(_) => Ok(()),
        }
    }

    /// Whether the work of a ticket has written its memory, as far as it is known.
    fn check(&self, state: &mut State, ticket: Ticket) -> Result<(), Refused> {
        if ticket.epoch != state.epoch {
            return Err(Refused::Stale(self.device));
        }
        match ticket.number.and_then(|number| self.unwritten.why(number)) {
            None => Ok(()),
            Some(Why::Reported(error)) => Err(Refused::Device(error)),
            Some(Why::Kernel(error)) => {
                self.end_skipping(state)?;
                Err(Refused::Unwritten(error))
            }
        }
    }

    /// Makes the stream run work again that is enqueued from now on: it skips all work behind a failed kernel
    /// until it has reported the failure, and the kernel's own note may be found before. Blocks until the
    /// work that is enqueued is over.
    ///
    /// # Errors
    ///
    /// A device that is closed skips kernels too, and its stream then refuses an event.
    fn end_skipping(&self, state: &mut State) -> Result<(), DeviceError> {
        let Some(stream) = state.stream.clone() else { return Ok(()) };
        // A kernel makes its note before its stream has the failure. An event behind the kernel is past both.
        let _ = stream.record()?.synchronize();
        if let Err(failure) = stream.query() {
            self.fail(state, failure);
        }
        Ok(())
    }

    /// All work that is not known to have succeeded has failed.
    fn fail(&self, state: &mut State, error: DeviceError) {
        self.unwritten.reported(state.settled..state.next, error);
        state.settled = state.next;
        state.reported = Some(state.next);
    }

    fn reopen(&self, state: &mut State) {
        state.reopen();
        self.unwritten.clear();
    }

    /// Whether an error says that the stream is of a device that was reset or closed, so that a new one
    /// works.
    fn is_stale(&self, error: &DeviceError) -> bool {
        match error {
            DeviceError::Closed { .. } => true,
            DeviceError::Call { error, .. } => {
                error.kind() == BackendErrorKind::Lost && !self.device.is_lost()
            }
            _ => false,
        }
    }
}

fn is_read(error: &DeviceError) -> bool {
    matches!(error, DeviceError::Call { call: "read", .. })
}

impl State {
    /// Counts memory that was enqueued. Returns the event to wait for if the program is too far ahead of the
    /// device: the memory of what it released is in use until then.
    fn advance(&mut self, stream: &Stream, limit: usize, bytes: usize) -> Option<Event> {
        self.ahead += bytes;
        if self.ahead < limit {
            return None;
        }
        self.ahead = 0;
        // The stream refuses it only if it also refuses everything else.
        let milestone = stream.record().ok()?;
        self.milestone.replace(milestone)
    }

    /// Work below `end` has succeeded.
    fn settle(&mut self, epoch: u64, end: u64) {
        if epoch == self.epoch {
            self.settled = self.settled.max(end);
        }
    }

    fn reopen(&mut self) {
        self.stream = None;
        self.epoch += 1;
        self.settled = self.next;
        self.reported = None;
        self.milestone = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_queue_asks_the_device_nothing() {
        // It is made under the lock of all clients, and a backend may call burn.
        let queue = BurnQueue::new(Device::cpu());
        assert_eq!(queue.limit.get(), None);
        assert_eq!(queue.limit(), AHEAD_ON_HOST);
    }

    #[test]
    fn a_program_waits_for_what_it_enqueued_twice_its_limit_before() {
        let stream = Device::cpu().create_stream().unwrap();
        let mut state = State::default();
        // The first milestone is only noted, and each later one has the one before to wait for.
        let waits: Vec<bool> = (0..6).map(|_| state.advance(&stream, AHEAD, AHEAD / 2).is_some()).collect();
        assert_eq!(waits, [false, false, false, true, false, true]);
    }
}
