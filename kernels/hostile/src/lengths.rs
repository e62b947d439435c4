//! A driver whose memory, pinned memory and reads are not as long as they have to be.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use device_kernels::{Call, DType, Layout, Unary, kernel_sets};
use device_registry::backend::{
    AllocateOptions, BackendDescriptor, BackendError, Completion, DeviceDriver, DeviceProperties,
    EventDriver, EventOptions, HostMemory, Memory, MemoryInfo, MemoryReuse, OpenedDevice, Span, StreamDriver,
    StreamOptions,
};
use device_registry::{Device, HostBuffer, Pending, backends, device};

use crate::{Test, hostile_backend, refused};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("a_read_with_bytes_of_another_length_is_an_error", reads),
        ("pinned_memory_of_another_length_is_an_error", pinned),
        ("memory_that_is_too_short_is_no_memory_of_others", short_memory),
        ("one_memory_for_two_allocations_harms_its_own_backend_alone", one_memory),
    ]
}

static LENGTHS: BackendDescriptor = BackendDescriptor::new("lengths", || Ok(Box::new(Lengths)));

struct Lengths;

hostile_backend!(
    Lengths,
    2,
    |ordinal| {
        // The second divides memory that is far too short for it.
        let reuse = [MemoryReuse::Never, MemoryReuse::Divided { alignment: 512 }][ordinal];
        Ok(DeviceProperties::new("lengths").with_pinned_memory(true).with_memory_reuse(reuse))
    },
    |this, ordinal| Ok(OpenedDevice::new(this, LengthsDevice { queues: ordinal == 0 }))
);

struct LengthsDevice {
    queues: bool,
}

/// How many bytes there are, in place of any number.
const BYTES: usize = 16;

/// The same memory for all, with no bytes.
struct Short;

impl Memory for Short {}

impl DeviceDriver for LengthsDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown().with_total(1).with_free(u64::MAX))
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        // Memory of a type that kernels of `cpu` take, and one that they do not.
        if options.len.is_multiple_of(2) {
            return Ok(Arc::new(HostMemory::zeroed(BYTES)?));
        }
        static ONE: LazyLock<Arc<Short>> = LazyLock::new(|| Arc::new(Short));
        Ok(Arc::clone(&ONE) as _)
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        destination.memory_as::<HostMemory>()?.write(destination.range())?.copy_from_slice(source);
        Ok(())
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        destination.copy_from_slice(&source.memory_as::<HostMemory>()?.read(source.range())?);
        Ok(())
    }

    fn copy(&self, _source: &Span, _destination: &Span) -> Result<(), BackendError> {
        Ok(())
    }

    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        if self.queues { Ok(Box::new(AcceptingQueue)) } else { Err(BackendError::unsupported("queues")) }
    }

    fn allocate_host(&self, len: usize) -> Result<HostBuffer, BackendError> {
        HostBuffer::zeroed(len / 2)
    }
}

/// A queue whose work is always done, and never was.
struct AcceptingQueue;

impl StreamDriver for AcceptingQueue {
    fn write(&self, _destination: &Span, _source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        Ok(())
    }

    fn read(
        &self,
        source: &Span,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        // A buffer of its own, longer or shorter than the one that it got, or none at all.
        match source.len() % 3 {
            0 => completion.finish(HostBuffer::zeroed(destination.len() * 2)),
            1 => completion.finish(HostBuffer::zeroed(destination.len() / 2)),
            _ => drop(completion),
        }
        Ok(())
    }

    fn copy(&self, _source: &Span, _destination: &Span) -> Result<(), BackendError> {
        Ok(())
    }

    fn record(&self, _options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        Ok(Box::new(Event))
    }

    fn query(&self) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        Ok(())
    }
}

struct Event;

impl EventDriver for Event {
    fn query(&self) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn elapsed_since(&self, _start: &dyn EventDriver) -> Result<Duration, BackendError> {
        Ok(Duration::MAX)
    }
}

fn lengths_device(ordinal: usize) -> Device {
    backends().register(&LENGTHS).unwrap();
    device(&format!("lengths:{ordinal}")).unwrap()
}

fn reads() {
    let device = lengths_device(0);
    let buffer = device.allocate(4096).unwrap();
    let stream = device.create_stream().unwrap();
    for len in 1..100 {
        refused(stream.read(&buffer, 0..len).and_then(Pending::wait), "read");
        // A stream keeps the failure until it is reported.
        let _ = stream.synchronize();
    }
    works_again(&device);
}

/// The stream of a device whose reads failed takes work.
fn works_again(device: &Device) {
    let buffer = device.allocate(64).unwrap();
    let stream = device.create_stream().unwrap();
    stream.write(&buffer, 0, vec![1; 64]).unwrap();
    stream.synchronize().unwrap();
}

fn pinned() {
    for ordinal in 0..2 {
        for len in [1, 2, 3, 4097] {
            refused(lengths_device(ordinal).allocate_host(len), "bytes");
        }
    }
}

fn short_memory() {
    let device = lengths_device(1);
    let buffer = device.allocate(4096).unwrap();
    let large = device.allocate(4 << 20).unwrap();
    for attempt in [
        buffer.write(0, &[1; BYTES + 1]),
        buffer.read(BYTES, &mut [0; 1]),
        large.write(2 << 20, &[1; 16]),
        large.read((2 << 20) + 1, &mut [0; 16]),
        large.fill(.., &[1]),
    ] {
        refused(attempt, "lengths:1");
    }
    let layout = Layout::contiguous([1024]).unwrap();
    let call = Call::new(Unary::Neg, &[(DType::F32, layout).into()], &[(DType::F32, layout).into()]).unwrap();
    let set = kernel_sets().load("cpu").unwrap();
    // Its memory is of the type that this kernel set knows, and far shorter than its spans say.
    let device = lengths_device(0);
    let a = device.allocate(4096).unwrap();
    let b = device.allocate(4096).unwrap();
    let queue = device.create_stream().unwrap();
    let launched = queue.launch(&[&a, &b], move |launch| set.launch(&call, launch));
    refused(launched.and_then(|()| queue.synchronize()), "lengths:0");
}

fn one_memory() {
    let device = lengths_device(1);
    let one = device.allocate(63);
    let two = device.allocate(65);
    // Two buffers of one memory that is not theirs to write.
    for buffer in [one, two].into_iter().flatten() {
        let _ = buffer.write(0, &[1; 8]);
        let _ = buffer.fill(.., &[2]);
    }
}
