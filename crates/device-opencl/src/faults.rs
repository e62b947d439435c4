//! Fault injection, which the option `faults` offers to tests.

use std::ptr;
use std::sync::Arc;

use device_registry::backend::testing::{FaultCounter, FaultPoint};
use device_registry::backend::{BackendError, BackendErrorKind, FaultInjector, LossReporter};

use crate::context::Context;
use crate::error::OpenClError;
use crate::handle::Handle;
use crate::sys::{CL_OUT_OF_RESOURCES, cl_event, cl_uint};

/// The injected faults of a device, which its streams share. Without the option there are none.
#[derive(Clone, Default)]
pub(crate) struct Faults(Option<Arc<FaultCounter>>);

impl Faults {
    pub(crate) fn new(reporter: &LossReporter) -> Self {
        let counter = FaultCounter::new().without_stalls().with_loss_reporter(reporter.clone());
        Self(Some(Arc::new(counter)))
    }

    pub(crate) fn injector(&self) -> Option<&dyn FaultInjector> {
        Some(&**self.0.as_ref()?)
    }

    /// Counts an operation of a blocking call.
    pub(crate) fn before(&self, operation: FaultPoint) -> Result<(), BackendError> {
        self.0.as_ref().map_or(Ok(()), |counter| counter.before(operation))
    }

    /// Counts a command that is about to be enqueued. An injected failure is the command's, not this call's.
    pub(crate) fn before_command(
        &self,
        operation: FaultPoint,
        context: &Context,
    ) -> Result<WaitList, BackendError> {
        match self.before(operation) {
            Ok(()) => Ok(WaitList { event: ptr::null_mut(), handle: None }),
            Err(error) if error.kind() == BackendErrorKind::Lost => Err(error),
            Err(_) => WaitList::failing(context).map_err(OpenClError::own),
        }
    }
}

/// The events that a command waits for: none, or with an injected failure one that fails when this is
/// dropped. Then the command does nothing and fails.
pub(crate) struct WaitList {
    event: cl_event,
    handle: Option<Handle>,
}

impl WaitList {
    fn failing(context: &Context) -> Result<Self, OpenClError> {
        // SAFETY: `context` is valid, and the call gives its one reference to the event away.
        let handle = unsafe {
            Handle::event_of(context.functions(), |cl, event| {
                *event = cl.clCreateUserEvent(context.get())?;
                Ok(())
            })
        }?;
        Ok(Self { event: handle.get(), handle: Some(handle) })
    }

    pub(crate) fn len(&self) -> cl_uint {
        self.handle.is_some().into()
    }

    /// The first of [`len`](Self::len) events, valid for as long as `self`.
    pub(crate) fn start(&self) -> *const cl_event {
        if self.handle.is_some() { &raw const self.event } else { ptr::null() }
    }
}

impl Drop for WaitList {
    fn drop(&mut self) {
        let Some(event) = &self.handle else { return };
        // SAFETY: `failing` made the event, and its status is set here, once.
        let set = unsafe { event.functions().clSetUserEventStatus(event.get(), CL_OUT_OF_RESOURCES) };
        if let Err(error) = set {
            log::error!("an injected failure does not happen: {error}");
        }
    }
}
