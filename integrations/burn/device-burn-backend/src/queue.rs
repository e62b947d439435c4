//! The stream of a device that all of burn's work is enqueued in, and what is known of its failures.
//!
//! A kernel runs after the call that enqueued it has returned. If it fails, the stream skips the work behind it, until
//! the failure is reported; it does not say which work failed first. So each piece of work has a number, and a reported
//! failure holds for all numbers since the last that is known to have succeeded: no tensor is read that was not written.

use device_registry::{Buffer, Device, DeviceError, HostBuffer, Stream};
use device_registry::BackendErrorKind;
use parking_lot::Mutex;

/// The queue of one device.
pub(crate) struct Queue {
    device: Device,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stream: Option<Stream>,
    /// Which opening of the device the stream is of.
    epoch: u64,
    /// The number of the next work.
    next: u64,
    /// Work below this number has succeeded.
    settled: u64,
    failures: Vec<Failure>,
}

/// The work that a reported failure holds for: from `first` on, below `end`.
struct Failure {
    first: u64,
    end: u64,
    error: DeviceError,
}

/// Which work wrote a memory, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    epoch: u64,
    /// `None` for an upload, which no failure of queued work reaches.
    number: Option<u64>,
}

/// Why a memory cannot be used.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The device was reset or closed since: the bytes are lost, unless the host has them.
    Stale,
    Error(DeviceError),
}

impl From<DeviceError> for Refused {
    fn from(error: DeviceError) -> Self {
        Self::Error(error)
    }
}

impl Queue {
    pub(crate) fn new(device: Device) -> Self {
        Self { device, state: Mutex::default() }
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Memory with `bytes`. Blocks until the device has them.
    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<(Buffer, Ticket), DeviceError> {
        let epoch = self.state.lock().epoch;
        let buffer = self.device.allocate(bytes.len())?;
        buffer.write(0, bytes)?;
        Ok((buffer, Ticket { epoch, number: None }))
    }

    /// Enqueues work by `work`, which gets the stream and a check for the memories that it uses.
    ///
    /// A device that was reset or closed is opened again. Then memories from before are [`Refused::Stale`].
    pub(crate) fn enqueue<T>(
        &self,
        mut work: impl FnMut(&Stream, &dyn Fn(Ticket) -> Result<(), Refused>) -> Result<T, Refused>,
    ) -> Result<(T, Ticket), Refused> {
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
            // A stream of a device that was reset or closed refuses all work, and this is the cheapest work.
            let result = work(&stream, &|ticket| state.check(ticket));
            match result {
                Err(Refused::Error(error)) if !reopened && self.is_stale(&error) => {
                    state.reopen();
                    reopened = true;
                }
                Err(refused) => return Err(refused),
                Ok(value) => {
                    let number = state.next;
                    state.next += 1;
                    return Ok((value, Ticket { epoch: state.epoch, number: Some(number) }));
                }
            }
        }
    }

    /// The bytes of a memory that the work of `ticket` wrote. Blocks.
    pub(crate) fn download(&self, buffer: &Buffer, ticket: Ticket) -> Result<HostBuffer, Refused> {
        loop {
            let (pending, read) = self.enqueue(|stream, check| {
                check(ticket)?;
                Ok(stream.read(buffer, ..)?)
            })?;
            match pending.wait() {
                Ok(bytes) => {
                    let mut state = self.state.lock();
                    state.check(ticket)?;
                    state.settle(read);
                    return Ok(bytes);
                }
                Err(error) => self.report(error)?,
            }
            // The failure was of later work than that of the ticket, or the check above finds it.
            self.state.lock().check(ticket)?;
        }
    }

    /// Waits for all work. Blocks.
    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        let (stream, epoch, end) = {
            let state = self.state.lock();
            let Some(stream) = state.stream.clone() else { return Ok(()) };
            (stream, state.epoch, state.next)
        };
        let result = stream.synchronize();
        let mut state = self.state.lock();
        match result {
            Ok(()) if state.epoch == epoch => {
                state.settled = state.settled.max(end);
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(error) => {
                if state.epoch == epoch {
                    state.fail(error.clone());
                }
                if self.is_stale(&error) {
                    state.reopen();
                }
                Err(error)
            }
        }
    }

    /// Asks the stream for a failure that it has not reported yet, after `error` has come from a read.
    fn report(&self, error: DeviceError) -> Result<(), Refused> {
        let mut state = self.state.lock();
        let Some(stream) = state.stream.clone() else { return Ok(()) };
        match stream.query() {
            Err(first) => {
                state.fail(first);
                Ok(())
            }
            // Another thread has reported it.
            Ok(_) if state.failures.last().is_some_and(|failure| failure.end == state.next) => Ok(()),
            Ok(_) if state.failures.is_empty() => Err(Refused::Error(error)),
            Ok(_) => Ok(()),
        }
    }

    /// Whether an error says that the stream is of a device that was reset or closed, so that a new one works.
    fn is_stale(&self, error: &DeviceError) -> bool {
        match error {
            DeviceError::Closed { .. } => true,
            DeviceError::Call { error, .. } => error.kind() == BackendErrorKind::Lost && !self.device.is_lost(),
            _ => false,
        }
    }

    /// What to say of a memory that was refused.
    pub(crate) fn error(&self, refused: Refused) -> DeviceError {
        match refused {
            Refused::Error(error) => error,
            Refused::Stale => DeviceError::Host(device_registry::backend::BackendError::other(format_args!(
                "the data was on {}, which has been reset or closed since: compute it again, or load it",
                self.device
            ))),
        }
    }
}

impl State {
    fn check(&self, ticket: Ticket) -> Result<(), Refused> {
        if ticket.epoch != self.epoch {
            return Err(Refused::Stale);
        }
        let Some(number) = ticket.number else { return Ok(()) };
        let failed = |failure: &&Failure| (failure.first..failure.end).contains(&number);
        self.failures.iter().find(failed).map_or(Ok(()), |failure| Err(Refused::Error(failure.error.clone())))
    }

    fn settle(&mut self, ticket: Ticket) {
        if let Some(number) = ticket.number.filter(|_| ticket.epoch == self.epoch) {
            self.settled = self.settled.max(number + 1);
        }
    }

    /// All work that has not succeeded has failed.
    fn fail(&mut self, error: DeviceError) {
        self.failures.push(Failure { first: self.settled, end: self.next, error });
        self.settled = self.next;
    }

    fn reopen(&mut self) {
        self.stream = None;
        self.epoch += 1;
        self.settled = self.next;
        self.failures.clear();
    }
}
