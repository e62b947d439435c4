//! Queues of a library.

use std::any::Any;
use std::sync::Arc;

use device_registry::HostBuffer;
use device_registry::backend::{
    BackendError, Completion, EventDriver, EventOptions, FillPattern, Span, StreamDriver,
};

use crate::abi::{self, Object, Str, Table};
use crate::load::bytes;
use crate::load::device::span;
use crate::load::event::LoadedEvent;
use crate::load::report::{call, made};
use crate::load::tables::Tables;

pub(crate) struct LoadedStream {
    tables: &'static Tables,
    object: Object,
    queue: Arc<LoadedQueue>,
}

/// The queue of a stream, for kernels of its library.
pub(crate) struct LoadedQueue(Object);

// SAFETY: the rules of the interface allow the functions of a stream on any thread.
unsafe impl Send for LoadedQueue {}
// SAFETY: a shared reference only gives the pointer, which only a launch in the stream's turn uses.
unsafe impl Sync for LoadedQueue {}

impl LoadedQueue {
    pub(crate) fn object(&self) -> Object {
        self.0
    }
}

// SAFETY: the rules of the interface allow the functions of a stream on any thread.
unsafe impl Send for LoadedStream {}
// SAFETY: the core never calls two submitting functions of a stream at once, and the rules of the interface
// allow the others.
unsafe impl Sync for LoadedStream {}

impl LoadedStream {
    pub(crate) fn new(tables: &'static Tables, object: Object) -> Self {
        Self { tables, object, queue: Arc::new(LoadedQueue(object)) }
    }
}

/// A function of the table, or the error for one that the library does not have.
macro_rules! function {
    ($self:ident.$name:ident, $what:literal) => {
        match $self.tables.stream.$name {
            Some(function) => function,
            None => return Err(BackendError::unsupported($what)),
        }
    };
}

impl StreamDriver for LoadedStream {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::<LoadedQueue>::clone(&self.queue))
    }

    fn native_handle(&self, kind: &str) -> Option<u64> {
        let native_handle = self.tables.stream.native_handle?;
        let mut handle = 0;
        // SAFETY: the stream is alive, and the text and the place are valid during the call.
        let found = unsafe { native_handle(self.object, Str::of(kind), &mut handle) };
        (found != 0).then_some(handle)
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        let write = function!(self.write, "queued writes");
        let destination = span(self.tables, destination)?;
        let source = bytes::source(source);
        // SAFETY: the core keeps what the rules promise. The library owns the source from now on.
        call("write", |report| unsafe { write(self.object, &destination, &source, report) })
    }

    fn read(
        &self,
        source: &Span,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        let read = function!(self.read, "queued reads");
        let source = span(self.tables, source)?;
        let (destination, done) = bytes::destination(destination, completion);
        // SAFETY: the core keeps what the rules promise. The library owns the destination and the end from
        // now on.
        call("read", |report| unsafe { read(self.object, &source, &destination, &done, report) })
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let copy = function!(self.copy, "queued copies");
        let source = span(self.tables, source)?;
        let destination = span(self.tables, destination)?;
        // SAFETY: the core keeps what the rules promise.
        call("copy", |report| unsafe { copy(self.object, &source, &destination, report) })
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        let fill = function!(self.fill, "filling");
        let destination = span(self.tables, destination)?;
        let pattern = pattern.as_bytes();
        // SAFETY: the core keeps what the rules promise, and the pattern is valid during the call.
        call("filling", |report| unsafe {
            fill(self.object, &destination, pattern.as_ptr().cast(), pattern.len(), report)
        })
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let copy = function!(self.copy_from_peer, "copying from a peer");
        let source = span(self.tables, source)?;
        let destination = span(self.tables, destination)?;
        // SAFETY: the core keeps what the rules promise.
        call("copying from a peer", |report| unsafe { copy(self.object, &source, &destination, report) })
    }

    fn record(&self, options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        let record = function!(self.record, "events");
        let options = abi::EventOptions { timed: options.timed.into(), ..abi::EventOptions::ZEROED };
        let mut event = std::ptr::null_mut();
        // SAFETY: the stream is alive, and the options, the place and the report are valid during the call.
        call("record", |report| unsafe { record(self.object, &options, &mut event, report) })?;
        let event = made(event, "event")?;
        Ok(Box::new(LoadedEvent::new(self.tables, event)))
    }

    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        let wait = function!(self.wait, "waiting for an event");
        let event = event.downcast_ref::<LoadedEvent>()?.object_for(self.tables)?;
        // SAFETY: the stream and the event are alive, and the report is valid during the call.
        call("waiting for an event", |report| unsafe { wait(self.object, event, report) })
    }

    fn launched(&self) {
        if let Some(launched) = self.tables.stream.launched {
            // SAFETY: the stream is alive.
            unsafe { launched(self.object) }
        }
    }

    fn flush(&self) -> Result<(), BackendError> {
        let Some(flush) = self.tables.stream.flush else { return Ok(()) };
        // SAFETY: the stream is alive, and the report is valid during the call.
        call("flush", |report| unsafe { flush(self.object, report) })
    }

    fn query(&self) -> Result<bool, BackendError> {
        let query = function!(self.query, "queries of a stream");
        let mut done = 0;
        // SAFETY: the stream is alive, and the place and the report are valid during the call.
        call("query", |report| unsafe { query(self.object, &mut done, report) })?;
        Ok(done != 0)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        let synchronize = function!(self.synchronize, "waiting for a stream");
        // SAFETY: the stream is alive, and the report is valid during the call.
        call("synchronize", |report| unsafe { synchronize(self.object, report) })
    }
}

impl Drop for LoadedStream {
    fn drop(&mut self) {
        if let Some(destroy) = self.tables.stream.destroy {
            // SAFETY: the stream is alive, and is not used any longer.
            unsafe { destroy(self.object) }
        }
    }
}
