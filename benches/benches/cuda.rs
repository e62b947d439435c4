//! The same work through device-registry and directly by `cudarc`, in turns, so that other load affects both.
//! It prints the median of the ratios, ours to the other: a copy below 1.03 has 0.97 of the direct speed.
//!
//! An empty operation is an event that is recorded in a stream and waited for. Opening is retaining the
//! primary context and releasing it, without other users in the process. Without a GPU it prints a line and
//! measures nothing.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use device_cuda::cudarc::driver::{DriverError, result, sys};
use device_registry::{Device, HostBuffer, device};
use device_registry_benches::beside;

device_registry::autoload!();

const SIZES: [usize; 3] = [64 << 10, 1 << 20, 16 << 20];

/// The first device without the registry. It stays open.
struct Direct {
    stream: sys::CUstream,
}

fn expect<T>(result: Result<T, DriverError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn retain() -> sys::CUcontext {
    // SAFETY: the driver is started, and there is a first device.
    expect(unsafe { result::primary_ctx::retain(0) })
}

impl Direct {
    fn new() -> Self {
        // SAFETY: the context is retained for the rest of the process.
        expect(unsafe { result::ctx::set_current(retain()) });
        Self {
            stream: expect(result::stream::create_with_priority(result::stream::StreamKind::NonBlocking, 0)),
        }
    }

    fn finish(&self) {
        // SAFETY: it is there.
        expect(unsafe { result::stream::synchronize(self.stream) });
    }

    fn allocate(&self, len: usize) -> sys::CUdeviceptr {
        // SAFETY: the context is current.
        expect(unsafe { result::malloc_sync(len) })
    }
}

fn free(pointer: sys::CUdeviceptr) {
    // SAFETY: it was allocated here, and no work uses it.
    expect(unsafe { result::free_sync(pointer) });
}

fn copies(criterion: &mut Criterion, device: Device, direct: &Direct) {
    for len in SIZES {
        let pageable = || HostBuffer::zeroed(len).expect("there is memory");
        let pinned = || device.allocate_host(len).expect("there is memory");
        copies_of(criterion, device, direct, "", [pageable(), pageable(), pageable()]);
        copies_of(criterion, device, direct, "/pinned", [pinned(), pinned(), pinned()]);
    }
}

fn copies_of(
    criterion: &mut Criterion,
    device: Device,
    direct: &Direct,
    kind: &str,
    [mut source, mut ours, mut theirs]: [HostBuffer; 3],
) {
    let len = source.len();
    let mut group = criterion.benchmark_group(format!("{}/{len}{kind}", device.name()));
    group.throughput(Throughput::Bytes(len as u64));
    // Write to all of it: pages that were never written to are one shared page.
    for (number, bytes) in [&mut source, &mut ours, &mut theirs].into_iter().enumerate() {
        bytes.fill(number as u8 + 1);
    }
    let [buffer, other] = [0; 2].map(|_| device.allocate(len).expect("there is memory"));
    let [plain, plain_other] = [0; 2].map(|_| direct.allocate(len));
    let stream = direct.stream;
    let write = || {
        // SAFETY: the device's memory has the same length as `source`, and `finish` waits for the copy.
        expect(unsafe { result::memcpy_htod_async(plain, black_box(&source[..]), stream) });
        direct.finish();
    };
    beside(&mut group, "write", || buffer.write(0, black_box(&source)).expect("it is all of it"), write);
    let read = || {
        // SAFETY: the device's memory has the same length as `theirs`, and `finish` waits for the copy.
        expect(unsafe { result::memcpy_dtoh_async(black_box(&mut theirs[..]), plain, stream) });
        direct.finish();
    };
    beside(&mut group, "read", || buffer.read(0, black_box(&mut ours)).expect("it is all of it"), read);
    let copy = || {
        // SAFETY: both memories have `len` bytes, and `finish` waits for the copy.
        expect(unsafe { result::memcpy_dtod_async(plain_other, plain, len, stream) });
        direct.finish();
    };
    beside(&mut group, "copy", || other.copy_from(&buffer).expect("it is all of both"), copy);
    [plain, plain_other].into_iter().for_each(free);
    // The cost of zeroing new memory, which the direct side does not do.
    let allocate = || drop(black_box(device.allocate(len).expect("there is memory")));
    beside(&mut group, "allocate", allocate, || free(black_box(direct.allocate(len))));
}

fn empty_operations(criterion: &mut Criterion, device: Device, direct: &Direct) {
    let mut group = criterion.benchmark_group(device.name());
    let stream = device.create_stream().expect("it is open");
    let ours = || {
        let event = stream.record().expect("it is submitted");
        stream.synchronize().expect("it is done");
        drop(event);
    };
    let theirs = || {
        let event = expect(result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING));
        // SAFETY: both are of the context that is current.
        expect(unsafe { result::event::record(event, direct.stream) });
        direct.finish();
        // SAFETY: it was made here.
        expect(unsafe { result::event::destroy(event) });
    };
    beside(&mut group, "event and synchronize", ours, theirs);
}

/// Before anything else has the context.
fn opening(criterion: &mut Criterion, device: Device) {
    let mut group = criterion.benchmark_group(device.name());
    let ours = || {
        device.open().expect("it is there");
        device.close().expect("it has nothing to do");
    };
    let theirs = || {
        retain();
        // SAFETY: it was just retained.
        expect(unsafe { result::primary_ctx::release(0) });
    };
    device.close().expect("it has nothing to do");
    beside(&mut group, "open and close", ours, theirs);
}

fn native(criterion: &mut Criterion) {
    if device_conformance::device_or_skip("cuda").is_none() {
        return;
    }
    let device = device("cuda:0").expect("it is there");
    opening(criterion, device);
    let direct = Direct::new();
    copies(criterion, device, &direct);
    empty_operations(criterion, device, &direct);
}

criterion_group!(benches, native);
criterion_main!(benches);
