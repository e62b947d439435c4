//! The end of an open device: its loss, its reset and its close.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::backend::{BackendError, BackendErrorKind};
use crate::error::DeviceError;
use crate::runtime::isolation::{drop_isolated, isolated, log_isolated};
use crate::runtime::open_device::{Gone, OpenDevice};
use crate::runtime::outcome::Outcome;
use crate::sync::{fence, lock, pause};

impl OpenDevice {
    /// Looks whether an error means that the device is lost.
    pub(super) fn note<T>(&self, result: &Result<T, DeviceError>) {
        if let Err(DeviceError::Call { error, .. }) = result {
            self.note_loss(error);
        }
    }

    /// The same for an error that did not come from a call.
    pub(crate) fn note_loss(&self, error: &BackendError) {
        if error.kind() == BackendErrorKind::Lost {
            // The first one counts.
            let _ = self.gone.set(Gone::Lost(error.clone()));
        }
    }

    /// Announces that the device is lost, once.
    pub(crate) fn announce_loss(&self) {
        let Some(Gone::Lost(error)) = self.gone.get() else { return };
        if self.announced.swap(true, Ordering::AcqRel) {
            return;
        }
        // The driver may never finish what it has accepted. First the answers, then the log, whose code is a program's.
        self.fail_open_reads(&DeviceError::Call { device: self.device, call: "read", error: error.clone() });
        log_isolated(|| log::error!("`{}` is lost: {}", self.device, error.message()));
    }

    pub(crate) fn add_open_read(&self, read: &Arc<Outcome>) {
        let mut reads = lock(&self.open_reads);
        if reads.len() == reads.capacity() {
            reads.retain(|read| read.strong_count() > 0);
        }
        reads.push(Arc::downgrade(read));
    }

    /// Answers in the place of a driver that will not.
    fn fail_open_reads(&self, error: &DeviceError) {
        let reads = std::mem::take(&mut *lock(&self.open_reads));
        for read in reads.iter().filter_map(Weak::upgrade) {
            read.set(Err(error.clone()));
        }
    }

    /// Gives the device back, after its work is done. Whether it could be told of every error, it is closed then.
    pub(crate) fn close(&self) -> Result<(), DeviceError> {
        const CALL: &str = "close";
        self.check(CALL)?;
        if self.leaving.swap(true, Ordering::AcqRel) {
            return Err(DeviceError::Closed { device: self.device, call: CALL });
        }
        let work = self.synchronize();
        let lost = self.check(CALL);
        if self.gone.set(Gone::Closed).is_err() {
            // It was lost meanwhile, and its reset is still to come.
            self.leaving.store(false, Ordering::Release);
            if let Err(error) = work {
                log_isolated(|| log::error!("while `{}` was closed: {error}", self.device));
            }
            return lost.and(self.check(CALL));
        }
        self.end_own_streams();
        // Calls of other threads that were let in before, and the work that they put in.
        fence(Ordering::SeqCst);
        while self.calls.load(Ordering::SeqCst) > 0 {
            pause();
        }
        let queues = self.queues();
        queues.iter().for_each(|queue| queue.settle_for_good());
        // Only now a queue may be dropped whose work was not known to be done.
        self.settled.store(true, Ordering::Release);
        let mut late: Vec<_> = queues.iter().filter_map(|queue| queue.take_failure().err()).collect();
        // A statement of its own: a stream that ends holds its own lock while it takes this one.
        let unreported = std::mem::take(&mut *lock(&self.unreported));
        late.extend(unreported);
        let closed = std::mem::take(&mut *lock(&self.closed));
        drop_isolated(self.device, closed);
        let closed = isolated(self.device, CALL, || self.driver.close());
        self.fail_open_reads(&DeviceError::Closed { device: self.device, call: "read" });
        let mut errors = work.err().into_iter().chain(late).chain(closed.err());
        let first = errors.next();
        // One can be returned, and nobody will ask again.
        errors.for_each(|error| log_isolated(|| log::error!("while `{}` was closed: {error}", self.device)));
        first.map_or(Ok(()), Err)
    }

    /// Lets the next open begin anew, if the device is lost and the driver can do so.
    pub(crate) fn reset(&self) -> Result<(), DeviceError> {
        let fail = |error| Err(DeviceError::Call { device: self.device, call: "reset", error });
        match self.check("reset") {
            Ok(()) => return fail(BackendError::invalid("the device is not lost, and goes on as it is")),
            Err(DeviceError::Call { .. }) => {}
            Err(other) => return Err(other),
        }
        if self.leaving.swap(true, Ordering::AcqRel) {
            return fail(BackendError::invalid("another thread has reset the device, or is doing so"));
        }
        let outcome = isolated(self.device, "reset", || self.driver.reset());
        self.leaving.store(outcome.is_ok(), Ordering::Release);
        if outcome.is_ok() {
            self.end_own_streams();
        }
        outcome
    }

    /// Ends the streams that are the device's own: the default stream, of which a program may hold handles, and those for
    /// blocking calls.
    fn end_own_streams(&self) {
        let stream = lock(&self.default_stream).take();
        let idle = std::mem::take(&mut *lock(&self.idle_queues));
        drop(idle);
        if let Some(stream) = stream {
            // Handles that a program has can do no more than return that the device is gone.
            stream.queue().close();
        }
    }
}
