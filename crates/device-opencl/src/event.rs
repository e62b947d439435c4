//! Events: points in a queue that were recorded.

use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use device_registry::backend::{BackendError, EventDriver};

use crate::commands::Commands;
use crate::context::Context;
use crate::error::OpenClError;
use crate::handle::Handle;
use crate::sys::*;

/// A marker that a stream has enqueued.
pub(crate) struct OpenClEvent {
    marker: Arc<Handle>,
    /// The marker's number among the commands of its stream.
    number: u64,
    commands: Arc<Commands>,
    context: Arc<Context>,
}

impl OpenClEvent {
    pub(crate) fn new(
        marker: Arc<Handle>,
        number: u64,
        commands: &Arc<Commands>,
        context: &Arc<Context>,
    ) -> Self {
        Self { marker, number, commands: Arc::clone(commands), context: Arc::clone(context) }
    }

    pub(crate) fn get(&self) -> cl_event {
        self.marker.get()
    }

    /// Whether queues of this context can wait for the event.
    pub(crate) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    /// The timestamp at which the device reached the event, in nanoseconds.
    fn time(&self) -> Result<u64, BackendError> {
        let functions = self.marker.functions();
        let mut time = 0_u64;
        let size = size_of_val(&time);
        let place = (&raw mut time).cast();
        let end = CL_PROFILING_COMMAND_END;
        // SAFETY: `self` owns the event, and `time` is a place for the number that this query writes.
        unsafe { functions.clGetEventProfilingInfo(self.get(), end, size, place, ptr::null_mut()) }
            .map_err(OpenClError::own)?;
        // Real timestamps have counted nanoseconds for a while. A driver without a timer numbers the four of
        // an event from 0 to 3, or leaves them 0.
        if time <= 3 {
            return Err(BackendError::unsupported(format_args!(
                "the driver has no timestamps: the one of this event is {time} ns"
            )));
        }
        Ok(time)
    }
}

impl EventDriver for OpenClEvent {
    fn query(&self) -> Result<bool, BackendError> {
        let Some(outcome) = marker_outcome(&self.marker) else { return Ok(false) };
        // A failure before the marker comes first, because it may be the only reason why the marker failed.
        self.commands.outcome_before(self.number)?;
        outcome.map(|()| true).map_err(OpenClError::own)
    }

    /// A queue is in order: when its marker is over, all work before it is over.
    fn is_over(&self) -> Result<bool, BackendError> {
        let status = status(&self.marker).map_err(OpenClError::own)?;
        Ok(status <= CL_COMPLETE)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        let waited = wait(MARKER, &self.marker);
        self.commands.outcome_before(self.number)?;
        waited.map_err(OpenClError::own)
    }

    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError> {
        let start = start.downcast_ref::<Self>()?;
        let nanoseconds = self
            .time()?
            .checked_sub(start.time()?)
            .ok_or_else(|| BackendError::invalid("the event was reached before the start"))?;
        Ok(Duration::from_nanos(nanoseconds))
    }
}

impl Drop for OpenClEvent {
    fn drop(&mut self) {
        self.commands.forget(self.number);
    }
}

/// The status of an event's command: `CL_COMPLETE`, positive before that, or the command's error.
pub(crate) fn status(event: &Handle) -> Result<cl_int, OpenClError> {
    let mut status: cl_int = 0;
    let size = size_of_val(&status);
    let place = (&raw mut status).cast();
    let what = CL_EVENT_COMMAND_EXECUTION_STATUS;
    // SAFETY: `event` is valid, and `status` is a place for the number that this query writes.
    unsafe { event.functions().clGetEventInfo(event.get(), what, size, place, ptr::null_mut()) }?;
    Ok(status)
}

/// The name of a marker in errors.
const MARKER: &str = "a marker";

/// The outcome of an event's command, which the function `call` enqueued; `None` while it is not over.
///
/// On Intel's driver for processors, a command that waited for a failed event has the status of a success,
/// and only a wait for the command fails. So this also waits for a command that is over.
pub(crate) fn outcome(call: &'static str, event: &Handle) -> Option<Result<(), OpenClError>> {
    let outcome = outcome_by_status(call, event)?;
    Some(outcome.and_then(|()| wait_only(call, event)))
}

/// The outcome of a marker, which waits for no event of another queue; `None` while it is not over.
pub(crate) fn marker_outcome(marker: &Handle) -> Option<Result<(), OpenClError>> {
    outcome_by_status(MARKER, marker)
}

fn outcome_by_status(call: &'static str, event: &Handle) -> Option<Result<(), OpenClError>> {
    match status(event) {
        Ok(status) if status > CL_COMPLETE => None,
        status => Some(status.and_then(|status| check(call, status))),
    }
}

/// Waits for an event's command, which the function `call` enqueued. The error is the command's own, by the
/// status or else by the wait.
pub(crate) fn wait(call: &'static str, event: &Handle) -> Result<(), OpenClError> {
    let waited = wait_only(call, event);
    check(call, status(event)?)?;
    waited
}

fn wait_only(call: &'static str, event: &Handle) -> Result<(), OpenClError> {
    // SAFETY: the list has one event, which is valid.
    let waited = unsafe { event.functions().clWaitForEvents(1, &event.get()) };
    waited.map_err(|error| match error.status() {
        // This says that the command has failed, and not the wait.
        Some(status @ CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) => OpenClError::new(call, status),
        _ => error,
    })
}

/// Fails with the status of a command that has failed, and that the function `call` enqueued.
pub(crate) fn check(call: &'static str, status: cl_int) -> Result<(), OpenClError> {
    if status < CL_COMPLETE { Err(OpenClError::new(call, status)) } else { Ok(()) }
}
