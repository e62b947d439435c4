//! Streams: queues of a device.

use std::any::Any;
use std::sync::Arc;

use device_registry::backend::{
    BackendError, BackendErrorKind, Completion, EventDriver, EventOptions, FillPattern, HostBuffer, Span,
    StreamDriver, StreamOptions,
};

use crate::context::Context;
use crate::event::CudaEvent;
use crate::library::{DeviceRange, Refused, Stream};
use crate::native::CudaStream;
use crate::reads::{PendingRead, Reads};

/// The driver's side of a stream.
pub(crate) struct CudaQueue {
    native: Arc<CudaStream>,
    /// The context's pending reads.
    reads: Arc<Reads>,
}

impl CudaQueue {
    pub(crate) fn create(context: &Context, options: &StreamOptions) -> Result<Self, BackendError> {
        let stream = Stream::create(&context.primary, options.priority)?;
        Ok(Self { native: Arc::new(CudaStream::new(Arc::new(stream))), reads: Arc::clone(&context.reads) })
    }

    pub(crate) fn stream(&self) -> &Arc<Stream> {
        self.native.shared_stream()
    }
}

impl StreamDriver for CudaQueue {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(&self.native) as _)
    }

    fn native_handle(&self, kind: &str) -> Option<u64> {
        (kind == "cuda.CUstream").then(|| self.native.stream().expose_provenance() as u64)
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        // SAFETY: only the core calls this, and it keeps `source` until the work is done. The bytes of a
        // shared `HostBuffer` neither move nor change.
        unsafe { self.stream().copy_from_host(source, DeviceRange::of(destination)?) }
    }

    fn read(
        &self,
        source: &Span,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        let source = DeviceRange::of(source)?;
        let mut read = PendingRead::open(&self.reads, self.stream(), destination, completion)?;
        // SAFETY: the bytes of a `HostBuffer` stay where they are when it is moved. `read` owns it and does
        // not touch it until the host function behind the copy runs; every other way out below waits for the
        // copy or leaks the bytes.
        if let Err(error) = unsafe { self.stream().copy_to_host(source, read.bytes()) } {
            // An error may come from earlier work, and does not mean that this copy has not begun.
            match error.kind() {
                BackendErrorKind::Lost => read.leak(),
                _ => read.refuse(),
            }
            return Err(error);
        }
        let entry = read.entry();
        self.stream().launch_host_function(read).map_err(|Refused { error, function }| {
            match function {
                // The driver may still call it.
                None => entry.close(),
                // The copy was submitted, and no host function will say when it is done.
                Some(read) if error.kind() != BackendErrorKind::Lost && self.synchronize().is_ok() => {
                    read.refuse();
                }
                Some(read) => read.leak(),
            }
            error
        })
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.stream().copy(DeviceRange::of(source)?, DeviceRange::of(destination)?)
    }

    /// Patterns of 8 and 16 bytes are left to the core, which writes some and doubles them by copies. The
    /// driver has no function for them. Whether it may fill rows with a pitch of 8 bytes on every device is
    /// not documented.
    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.stream().fill(DeviceRange::of(destination)?, pattern.as_bytes())
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.stream().copy_from_peer(DeviceRange::of(source)?, DeviceRange::of(destination)?)
    }

    fn record(&self, options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        Ok(Box::new(CudaEvent::new(self.stream().record(options.timed)?)))
    }

    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        Ok(self.stream().wait_event(event.downcast_ref::<CudaEvent>()?.recorded())?)
    }

    fn query(&self) -> Result<bool, BackendError> {
        match self.stream().is_done() {
            // A capture in the process refuses the query, which says nothing of the work.
            Err(error) if error.is_of_capture() => Ok(false),
            outcome => Ok(outcome?),
        }
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        Ok(self.stream().synchronize()?)
    }
}
