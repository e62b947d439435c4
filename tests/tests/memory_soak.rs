//! A million allocations for streams, uses and drops, with the cheapest driver there can be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use device_registry::backend::{
    AllocateOptions, Backend, BackendDescriptor, BackendError, Completion, DeviceDriver, DeviceProperties,
    EventDriver, EventOptions, FillPattern, HostBuffer, LoadFailure, Memory, MemoryInfo, MemoryReuse,
    OpenedDevice, Span, StreamDriver, StreamOptions,
};
use device_registry::{backends, device};

const KINDS: [MemoryReuse; 3] =
    [MemoryReuse::Rounded, MemoryReuse::Exact, MemoryReuse::Divided { alignment: 256 }];

/// How often the driver of each device has allocated and freed.
static CALLS: [[AtomicUsize; 2]; 2 * KINDS.len()] =
    [const { [const { AtomicUsize::new(0) }; 2] }; 2 * KINDS.len()];

struct Cheap;

impl Backend for Cheap {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(CALLS.len())
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new("cheap").with_memory_reuse(KINDS[ordinal % KINDS.len()]))
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        Ok(OpenedDevice::new(self, CheapDevice(&CALLS[ordinal])))
    }
}

struct CheapDevice(&'static [AtomicUsize; 2]);

/// Memory without bytes.
struct Nothing(&'static [AtomicUsize; 2]);

impl Memory for Nothing {}

impl Drop for Nothing {
    fn drop(&mut self) {
        self.0[1].fetch_add(1, Ordering::Relaxed);
    }
}

impl DeviceDriver for CheapDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, _options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        self.0[0].fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Nothing(self.0)))
    }

    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        Ok(Box::new(DoneAtOnce))
    }
}

/// A queue whose work is done when it is submitted.
struct DoneAtOnce;

impl StreamDriver for DoneAtOnce {
    fn write(&self, _destination: &Span, _source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        Ok(())
    }

    fn read(
        &self,
        _source: &Span,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        completion.finish(Ok(destination));
        Ok(())
    }

    fn copy(&self, _source: &Span, _destination: &Span) -> Result<(), BackendError> {
        Ok(())
    }

    fn fill(&self, _destination: &Span, _pattern: &FillPattern) -> Result<(), BackendError> {
        Ok(())
    }

    fn record(&self, _options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        Ok(Box::new(Self))
    }

    fn query(&self) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        Ok(())
    }
}

impl EventDriver for DoneAtOnce {
    fn query(&self) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn elapsed_since(&self, _start: &dyn EventDriver) -> Result<Duration, BackendError> {
        Ok(Duration::ZERO)
    }
}

fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(Cheap))
}

static CHEAP: BackendDescriptor = BackendDescriptor::new("cheap", load);

/// `count` operations on a device.
fn soak(ordinal: usize, count: usize) {
    backends().register(&CHEAP).unwrap();
    let device = device(&format!("cheap:{ordinal}")).unwrap();
    let streams = [(); 2].map(|()| device.create_stream().unwrap());
    let (mut live, mut random, mut early) = (Vec::new(), 0x9E37_79B9_7F4A_7C15_u64, 0);
    for step in 0..count {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let stream = &streams[(random >> 8) as usize % 2];
        // Forty lengths from 1 KiB to 1.25 MiB, of which short ones are common.
        let len = (1 + (random >> 16) as usize % 5) << (10 + (random >> 24) % 5 + (random >> 32) % 5);
        let buffer = stream.allocate(len).unwrap();
        stream.fill(&buffer, .., &[1]).unwrap();
        if live.len() < 16 {
            live.push(buffer);
        } else {
            live[(random >> 40) as usize % 16] = buffer;
        }
        if step == count / 10 {
            early = device.memory_statistics().unwrap().peak_reserved;
        }
    }
    let now = device.memory_statistics().unwrap();
    assert!(now.peak_reserved <= early + early / 4, "it grows: {early} bytes at first, and then {now:?}");
    assert!(now.reused > count as u64 * 9 / 10, "{now:?}");
    drop(live);
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    assert_eq!(device.memory_statistics().unwrap().allocated, 0);
    device.empty_cache().unwrap();
    let [allocated, freed] = CALLS[ordinal].each_ref().map(|calls| calls.load(Ordering::Relaxed));
    assert_eq!((allocated, device.memory_statistics().unwrap().reserved), (freed, 0));
}

#[test]
fn thousands_of_allocations_for_streams_stay_flat() {
    (0..3).for_each(|kind| soak(kind, 20_000));
}

#[test]
#[ignore = "slow: a million operations for each kind of memory"]
fn a_million_allocations_for_streams_stay_flat() {
    (3..6).for_each(|kind| soak(kind, 1_000_000));
}
