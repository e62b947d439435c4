//! Events of a library.

use std::time::Duration;

use device_registry::backend::{BackendError, EventDriver};

use crate::abi::Object;
use crate::load::device::of_this_library;
use crate::load::report::call;
use crate::load::tables::Tables;

pub(crate) struct LoadedEvent {
    tables: &'static Tables,
    object: Object,
}

// SAFETY: the rules of the interface allow the functions of an event on any thread.
unsafe impl Send for LoadedEvent {}
// SAFETY: the rules of the interface allow the functions of an event on any thread, at the same time.
unsafe impl Sync for LoadedEvent {}

impl LoadedEvent {
    pub(crate) fn new(tables: &'static Tables, object: Object) -> Self {
        Self { tables, object }
    }

    /// The object, for functions of these tables.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if the event is of another backend.
    pub(crate) fn object_for(&self, tables: &'static Tables) -> Result<Object, BackendError> {
        of_this_library(tables, self.tables, "an event")?;
        Ok(self.object)
    }
}

impl EventDriver for LoadedEvent {
    fn query(&self) -> Result<bool, BackendError> {
        let Some(query) = self.tables.event.query else { return Err(BackendError::unsupported("events")) };
        let mut done = 0;
        // SAFETY: the event is alive, and the place and the report are valid during the call.
        call("query", |report| unsafe { query(self.object, &mut done, report) })?;
        Ok(done != 0)
    }

    fn is_over(&self) -> Result<bool, BackendError> {
        let Some(is_over) = self.tables.event.is_over else { return self.query() };
        let mut over = 0;
        // SAFETY: the event is alive, and the place and the report are valid during the call.
        call("query", |report| unsafe { is_over(self.object, &mut over, report) })?;
        Ok(over != 0)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        let Some(synchronize) = self.tables.event.synchronize else {
            return Err(BackendError::unsupported("events"));
        };
        // SAFETY: the event is alive, and the report is valid during the call.
        call("synchronize", |report| unsafe { synchronize(self.object, report) })
    }

    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError> {
        let Some(elapsed_since) = self.tables.event.elapsed_since else {
            return Err(BackendError::unsupported("elapsed time"));
        };
        let start = start.downcast_ref::<Self>()?.object_for(self.tables)?;
        let mut nanoseconds = 0;
        // SAFETY: both events are alive, and the place and the report are valid during the call.
        call("elapsed time", |report| unsafe {
            elapsed_since(self.object, start, &mut nanoseconds, report)
        })?;
        Ok(Duration::from_nanos(nanoseconds))
    }
}

impl Drop for LoadedEvent {
    fn drop(&mut self) {
        if let Some(destroy) = self.tables.event.destroy {
            // SAFETY: the event is alive, and is not used any longer.
            unsafe { destroy(self.object) }
        }
    }
}
