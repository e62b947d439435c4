//! Events: points in a queue that were recorded.

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

    /// Whether queues of this context can wait for the event.
    pub(crate) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    /// The timestamp at which the device reached the event, in nanoseconds.
    fn time(&self) -> Result<u64, BackendError> {
        match get_event_profiling_info(self.get(), CL_PROFILING_COMMAND_END) {
            Ok(InfoType::Ulong(time)) => Ok(time),
            Ok(_) => Err(BackendError::other(
                "clGetEventProfilingInfo: expected a number of 64 bits, found another type",
            )),
            Err(status) => Err(call_error("clGetEventProfilingInfo", status)),
        }
    }
}

impl EventDriver for OpenClEvent {
    fn query(&self) -> Result<bool, BackendError> {
        match status(&self.marker) {
            Ok(status) if status > CL_COMPLETE => Ok(false),
            // A failure before the marker comes first, because it may be the only reason why the marker failed.
            reached => self
                .commands
                .outcome_before(self.number)
                .and(reached.and_then(succeeded).map_err(|status| call_error("a marker", status)))
                .map(|()| true),
        }
    }

    /// A queue is in order: when its marker is over, all work before it is over.
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
pub(crate) fn status(event: &Handle) -> Result<cl_int, cl_int> {
    match get_event_info(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS)? {
        InfoType::Int(status) => Ok(status),
        _ => Err(cl3::error_codes::CL_INVALID_VALUE),
    }
}

/// Waits for an event's command. The error is the command's own.
pub(crate) fn wait(event: &Handle) -> Result<(), cl_int> {
    match status(event)? {
        status if status > CL_COMPLETE => {}
        status => return succeeded(status),
    }
    // This result only says that a command has failed.
    let waited = wait_for_events(&[event.get()]);
    match status(event)? {
        status if status > CL_COMPLETE => waited,
        status => succeeded(status),
    }
}

/// The outcome of a command that is over.
fn succeeded(status: cl_int) -> Result<(), cl_int> {
    if status < CL_COMPLETE { Err(status) } else { Ok(()) }
}
