//! Points in a queue.

use std::sync::Arc;
use std::time::Duration;

use cl3::event::{
    CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS, CL_PROFILING_COMMAND_END, get_event_info,
    get_event_profiling_info, wait_for_events,
};
use cl3::info_type::InfoType;
use cl3::types::{cl_event, cl_int};
use device_registry::backend::{BackendError, EventDriver};

use crate::commands::Commands;
use crate::context::Context;
use crate::error::call_error;
use crate::handle::Handle;

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

    /// Whether it is of this context, and so can be waited for in its queues.
    pub(crate) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    /// The device's time at which it was reached, in nanoseconds.
    fn time(&self) -> Result<u64, BackendError> {
        match get_event_profiling_info(self.get(), CL_PROFILING_COMMAND_END) {
            Ok(InfoType::Ulong(time)) => Ok(time),
            Ok(_) => Err(BackendError::other("clGetEventProfilingInfo: the time is no number")),
            Err(status) => Err(call_error("clGetEventProfilingInfo", status)),
        }
    }
}

impl EventDriver for OpenClEvent {
    fn query(&self) -> Result<bool, BackendError> {
        match status(&self.marker) {
            Ok(status) if status > CL_COMPLETE => Ok(false),
            // What has failed before it comes first, as a marker may fail of that only.
            reached => self
                .commands
                .outcome_before(self.number)
                .and(reached.and_then(succeeded).map_err(|status| call_error("a marker", status)))
                .map(|()| true),
        }
    }

    /// A queue is in order: what is before a marker that is over is over.
    fn is_over(&self) -> Result<bool, BackendError> {
        let status = status(&self.marker).map_err(|status| call_error("clGetEventInfo", status))?;
        Ok(status <= CL_COMPLETE)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        let waited = wait(&self.marker);
        self.commands.outcome_before(self.number)?;
        waited.map_err(|status| call_error("clWaitForEvents", status))
    }

    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError> {
        let start = start.downcast_ref::<Self>()?;
        let nanoseconds = self
            .time()?
            .checked_sub(start.time()?)
            .ok_or_else(|| BackendError::invalid("the start was reached after the end"))?;
        Ok(Duration::from_nanos(nanoseconds))
    }
}

impl Drop for OpenClEvent {
    fn drop(&mut self) {
        self.commands.forget(self.number);
    }
}

/// The status of an event's command: complete, positive while it is not, or the command's error.
pub(crate) fn status(event: &Handle) -> Result<cl_int, cl_int> {
    match get_event_info(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS)? {
        InfoType::Int(status) => Ok(status),
        _ => Err(cl3::error_codes::CL_INVALID_VALUE),
    }
}

/// Waits for an event's command, which may be done. The error is the command's own.
pub(crate) fn wait(event: &Handle) -> Result<(), cl_int> {
    match status(event)? {
        status if status > CL_COMPLETE => {}
        status => return succeeded(status),
    }
    // It says only that something has failed.
    let waited = wait_for_events(&[event.get()]);
    match status(event)? {
        status if status > CL_COMPLETE => waited,
        status => succeeded(status),
    }
}

/// What became of a command that is over.
fn succeeded(status: cl_int) -> Result<(), cl_int> {
    if status < CL_COMPLETE { Err(status) } else { Ok(()) }
}
