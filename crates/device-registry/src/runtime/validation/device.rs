//! The layer before the driver of a device.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::backend::guarded_bytes::{self, GuardedBytes};
use crate::backend::{
    AllocateOptions, BackendError, DeviceDriver, FaultInjector, FillPattern, HostBuffer, Memory, MemoryInfo,
    Span, StreamDriver, StreamOptions,
};
use crate::runtime::validation::Ledger;
use crate::runtime::validation::stream::ValidatedStream;

/// How long threads of a driver may take after a close to release what they have.
const SETTLING: Duration = Duration::from_secs(1);

pub(super) struct ValidatedDevice {
    ledger: Arc<Ledger>,
}

impl ValidatedDevice {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger }
    }

    /// Reports which of the program's bytes the driver still has.
    fn check_released(&self) -> Result<(), BackendError> {
        let Ledger { sources, destinations, reads, .. } = &*self.ledger;
        self.ledger.drop_unused_sources();
        let left = || [reads, sources, destinations].map(|count| count.load(Ordering::Relaxed));
        let since = Instant::now();
        while left() != [0; 3] && since.elapsed() < SETTLING {
            thread::sleep(Duration::from_millis(1));
        }
        let [reads, sources, destinations] = left();
        let rule = if reads > 0 {
            format!("each queued read is finished, and {reads} were not when the device was closed")
        } else if sources > 0 {
            format!(
                "the source of each queued write is released, and {sources} were not when the device was closed"
            )
        } else if destinations > 0 {
            format!(
                "the destination of each queued read is released, and {destinations} were not when the device was closed"
            )
        } else {
            return Ok(());
        };
        Err(self.ledger.broken("close", &rule))
    }
}

impl DeviceDriver for ValidatedDevice {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.ledger.driver.native()
    }

    fn native_handle(&self, kind: &str) -> Option<u64> {
        self.ledger.driver.native_handle(kind)
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        self.ledger.call("memory info", || self.ledger.driver.memory_info())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        self.ledger.call("allocate", || self.ledger.driver.allocate(options))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        // A driver that reads the source after this call reads what the drop has written there.
        let source = GuardedBytes::copy_of(source, &self.ledger.blocking)?;
        self.ledger.call("write", || self.ledger.driver.write(destination, source.as_slice()))?;
        source.check_guards().map_err(|rule| self.ledger.broken("write", &rule))
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        let mut bytes = GuardedBytes::new(destination.len(), &self.ledger.blocking)?;
        let result = self.ledger.call("read", || self.ledger.driver.read(source, bytes.as_mut_slice()));
        bytes.check_guards().map_err(|rule| self.ledger.broken("read", &rule))?;
        result?;
        bytes.check_written().map_err(|rule| self.ledger.broken("read", &rule))?;
        destination.copy_from_slice(bytes.as_slice());
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.ledger.call("copy", || self.ledger.driver.copy(source, destination))
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.ledger.call("fill", || self.ledger.driver.fill(destination, pattern))
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.ledger.call("copy from a peer", || self.ledger.driver.copy_from_peer(source, destination))
    }

    fn create_stream(&self, options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        let stream = self.ledger.call("create a stream", || self.ledger.driver.create_stream(options))?;
        Ok(Box::new(ValidatedStream::new(&self.ledger, stream)))
    }

    fn allocate_host(&self, len: usize) -> Result<HostBuffer, BackendError> {
        let allocate =
            |len| self.ledger.call("allocate pinned host memory", || self.ledger.driver.allocate_host(len));
        // A driver without room for the guard may have enough without it.
        if let Some(longer) = len.checked_add(guarded_bytes::GUARD)
            && let Ok(buffer) = allocate(longer)
            && buffer.len() == longer
            && let Some(buffer) = buffer.guarded_behind(len)
        {
            return Ok(buffer);
        }
        allocate(len)
    }

    fn reset(&self) -> Result<(), BackendError> {
        // After it, a driver gets only calls that release something.
        self.ledger.open.end();
        self.ledger.call("reset", || self.ledger.driver.reset())
    }

    fn close(&self) -> Result<(), BackendError> {
        // No call is under way at a close.
        self.ledger.open.end();
        let result = self.ledger.call("close", || self.ledger.driver.close());
        let released = self.check_released();
        self.ledger.is_closed.store(true, Ordering::Relaxed);
        guarded_bytes::empty_quarantine();
        result.and(released)
    }

    fn faults(&self) -> Option<&dyn FaultInjector> {
        self.ledger.driver.faults()
    }
}
