//! The driver's end of queued work that returns bytes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::backend::{BackendError, HostBuffer};
use crate::sync::AtomicBool;

/// The driver's end of a [`Pending`](crate::Pending). The driver finishes it once, from any thread.
///
/// A completion that is dropped unfinished becomes an error of the work, so that no thread waits forever.
pub struct Completion(Option<Arc<dyn Finish>>);

/// The work that a [`Completion`] finishes. Neither function unwinds, even if a value that it drops panics.
pub(crate) trait Finish: Send + Sync {
    /// The name of the work in errors.
    fn call(&self) -> &'static str;

    /// The driver has done the work, or says why it failed.
    fn finish(self: Arc<Self>, result: Result<HostBuffer, BackendError>);

    /// Whether the work has its result, now and later.
    fn watched(&self) -> Arc<dyn Watched>;

    /// The driver has dropped the completion.
    fn drop_unfinished(self: Arc<Self>);
}

/// Whether work has its result.
pub(crate) trait Watched: Send + Sync {
    fn is_finished(&self) -> bool;
}

impl Watched for AtomicBool {
    fn is_finished(&self) -> bool {
        self.load(Ordering::Acquire)
    }
}

impl Completion {
    pub(crate) fn new(work: Arc<dyn Finish>) -> Self {
        Self(Some(work))
    }

    /// Ends the work with the buffer that it has filled, or with an error. A buffer of another length is an
    /// error of the work.
    ///
    /// It may be called on any thread, even on a driver's thread that may not call the driver: another thread
    /// later frees what has to be freed. It does not wait for work and never unwinds, so a callback
    /// from C may call it. It runs the waker of a task that awaits the work and, after a loss, the program's
    /// logger. Those may wait for a thread that is in a function of the driver, so the driver holds no lock
    /// that its functions take.
    pub fn finish(mut self, result: Result<HostBuffer, BackendError>) {
        if let Some(work) = self.0.take() {
            work.finish(result);
        }
    }

    /// Whether the work is finished, which a driver can look at when it no longer has the completion.
    ///
    /// A driver whose events return the errors of reads needs it. An event behind a failed read returns the
    /// error if the read is not finished when the driver records the event. If the read is finished, the core
    /// has its error. Until a caller has received the error, the core fails new events itself; later events
    /// do not fail for it.
    ///
    /// A flag that the driver sets after [`finish`](Self::finish) is too late: a thread may receive the error
    /// and record an event first. A flag set before is too early.
    pub fn watch(&self) -> CompletionWatch {
        // Only `finish`, `disarm` and the drop take the work.
        let watched = self.0.as_ref().map(|work| work.watched());
        CompletionWatch(watched.unwrap_or_else(|| Arc::new(AtomicBool::new(true))))
    }

    /// Drops the completion without an error, after the core has finished the work itself.
    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work.drop_unfinished();
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.0.as_ref().map(|work| work.call());
        f.debug_struct("Completion").field("call", &call).finish_non_exhaustive()
    }
}

/// Whether the work of a [`Completion`] is finished: [`Completion::watch`].
#[derive(Clone)]
pub struct CompletionWatch(Arc<dyn Watched>);

impl CompletionWatch {
    /// Whether the work has its result. If it failed after the driver accepted it, the stream has its error.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl CompletionWatch {
    pub(crate) fn into_watched(self) -> Arc<dyn Watched> {
        self.0
    }
}

impl fmt::Debug for CompletionWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompletionWatch").field(&self.is_finished()).finish()
    }
}
