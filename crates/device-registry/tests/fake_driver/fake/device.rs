//! Devices of the fake driver, and their memory. Work holds the bytes that it uses, and no handle of the
//! core: memory that is freed or given out too early shows in the bytes.

use std::any::Any;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device_registry::backend::testing::{FaultCounter, FaultPoint};
use device_registry::backend::{
    AllocateOptions, BackendError, DeviceDriver, FaultInjector, HostBuffer, HostMemory, Memory, MemoryInfo,
    Span, StreamDriver, StreamOptions,
};

use super::queue::{Queue, QueueDriver};
use super::{Control, Moment};

/// The bytes of memory, which outlive it.
struct Bytes {
    bytes: HostMemory,
    freed: AtomicBool,
    control: &'static Control,
}

impl Bytes {
    fn is_used(&self) -> &HostMemory {
        if self.freed.load(Ordering::SeqCst) {
            self.control.used_after_free.store(true, Ordering::SeqCst);
        }
        &self.bytes
    }
}

pub(crate) struct FakeMemory(Arc<Bytes>);

impl Memory for FakeMemory {
    fn on_host(&self) -> Option<&HostMemory> {
        Some(self.0.is_used())
    }
}

impl FakeMemory {
    /// Writes as native code does, which the core does not see.
    pub(crate) fn write(&self, range: Range<usize>, byte: u8) {
        let len = range.len();
        Place(Arc::clone(&self.0), range).write(&vec![byte; len]);
    }
}

impl Drop for FakeMemory {
    fn drop(&mut self) {
        let control = self.0.control;
        let _ = control.reach(Moment::Free);
        self.0.freed.store(true, Ordering::SeqCst);
        control.freed.fetch_add(1, Ordering::SeqCst);
        control.in_use.fetch_sub(self.0.bytes.len(), Ordering::SeqCst);
    }
}

/// Bytes of a span, without a handle of the core.
pub(super) struct Place(Arc<Bytes>, Range<usize>);

impl Place {
    pub(super) fn of(span: &Span) -> Result<Self, BackendError> {
        let place = Self(Arc::clone(&span.memory_as::<FakeMemory>()?.0), span.range());
        let (bytes, alignment) = (&place.0, place.0.control.properties.copy_alignment);
        assert!(span.range().end <= bytes.bytes.len() && span.len() > 0);
        let is_to_the_end = span.range().end == bytes.bytes.len();
        let is_aligned = |at: usize| at.is_multiple_of(alignment);
        assert!(is_aligned(span.offset()) && (is_aligned(span.len()) || is_to_the_end), "{span:?}");
        Ok(place)
    }

    pub(super) fn write(&self, source: &[u8]) {
        self.0.is_used().write(self.1.clone()).unwrap().copy_from_slice(source);
    }

    pub(super) fn read(&self, destination: &mut [u8]) {
        destination.copy_from_slice(&self.0.is_used().read(self.1.clone()).unwrap());
    }

    pub(super) fn copy_to(&self, destination: &Self) {
        let mut bytes = vec![0; self.1.len()];
        self.read(&mut bytes);
        destination.write(&bytes);
    }
}

/// Dropped with the pinned memory that it owns.
pub(super) struct PinnedBytes {
    _bytes: Vec<u8>,
    control: &'static Control,
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        self.control.pinned.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The native handle of a device.
pub(crate) struct Handle(pub(crate) &'static Control);

pub(super) struct FakeDevice {
    control: &'static Control,
    faults: FaultCounter,
}

impl FakeDevice {
    pub(super) fn new(control: &'static Control) -> Self {
        Self { control, faults: FaultCounter::new() }
    }

    /// A blocking call.
    fn call(&self, call: &'static str) -> Result<(), BackendError> {
        self.control.note(call);
        self.control.begin()
    }
}

impl DeviceDriver for FakeDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        let (control, len) = (self.control, options.len);
        control.note("allocate");
        self.faults.before(FaultPoint::Allocate { len })?;
        let free = control.capacity.load(Ordering::SeqCst) - control.in_use();
        if len > free {
            control.reach(Moment::Full)?;
            return Err(BackendError::out_of_memory(len as u64, Some(free as u64)));
        }
        let bytes = HostMemory::zeroed(len)?;
        control.allocated.fetch_add(1, Ordering::SeqCst);
        control.in_use.fetch_add(len, Ordering::SeqCst);
        let memory: Arc<dyn Memory> =
            Arc::new(FakeMemory(Arc::new(Bytes { bytes, freed: AtomicBool::new(false), control })));
        if control.holds_memory.load(Ordering::SeqCst) {
            control.change(|state| state.held_memory.push(Arc::clone(&memory)));
        }
        Ok(memory)
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        let place = Place::of(destination)?;
        self.call("write")?;
        place.write(source);
        Ok(())
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        let place = Place::of(source)?;
        self.call("read")?;
        place.read(destination);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let (from, to) = (Place::of(source)?, Place::of(destination)?);
        self.call("copy")?;
        from.copy_to(&to);
        Ok(())
    }

    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        if !self.control.has_queues {
            return Err(BackendError::unsupported("queues"));
        }
        let queue = Queue::new(self.control);
        self.control.change(|state| state.queues.push(Arc::clone(&queue)));
        Ok(Box::new(QueueDriver::begin(queue)))
    }

    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(Handle(self.control)))
    }

    fn allocate_host(&self, len: usize) -> Result<HostBuffer, BackendError> {
        self.control.pinned.fetch_add(1, Ordering::SeqCst);
        // It returns the wrong length for 13 bytes, for a test.
        let len = if len == 13 { 12 } else { len };
        let mut bytes = vec![0; len];
        let start = NonNull::new(bytes.as_mut_ptr()).unwrap();
        let owner = PinnedBytes { _bytes: bytes, control: self.control };
        // SAFETY: the vector has `len` initialised bytes there, does not move them with itself, and is only
        // dropped.
        Ok(unsafe { HostBuffer::from_raw_parts(start, len, owner) })
    }

    fn close(&self) -> Result<(), BackendError> {
        let queues = self.control.live_queues.load(Ordering::SeqCst);
        self.control.queues_at_close.store(queues, Ordering::SeqCst);
        self.call("close")
    }

    fn reset(&self) -> Result<(), BackendError> {
        if self.control.cannot_reset.load(Ordering::SeqCst) {
            return Err(BackendError::unsupported("resetting"));
        }
        Ok(())
    }

    fn faults(&self) -> Option<&dyn FaultInjector> {
        Some(&self.faults)
    }
}
