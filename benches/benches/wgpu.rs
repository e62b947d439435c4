//! The same work written directly on wgpu and through device-registry, on one device, in turns.
//!
//! An empty operation is a submission of no commands, which is then waited for. To open a device is to
//! request one of its adapter, with the same features and limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use device_registry::{Device, device};
use device_wgpu::wgpu::{
    Adapter, Buffer, BufferDescriptor, BufferUsages, CommandEncoderDescriptor, DeviceDescriptor, MapMode,
    PollType, Queue, SubmissionIndex,
};
use device_wgpu::{WgpuDevice, WgpuStream, wgpu};

use device_registry_benches::{beside, beside_timed};

device_registry::autoload!();

const SIZES: [usize; 3] = [64 << 10, 1 << 20, 16 << 20];

/// The handles that a program without a registry has.
#[derive(Clone)]
struct Native {
    adapter: Adapter,
    device: wgpu::Device,
    queue: Queue,
}

impl Native {
    /// The handles of the open device.
    fn of(device: Device) -> Self {
        let handles = |open: &WgpuDevice| {
            let (adapter, queue) = (open.adapter().clone(), open.queue().clone());
            Ok(Self { adapter, device: open.device().clone(), queue })
        };
        device.with_driver(handles).expect("it is open")
    }

    fn wait(&self, submission: SubmissionIndex) {
        let wait = PollType::Wait { submission_index: Some(submission), timeout: None };
        self.device.poll(wait).expect("nothing fails");
    }

    fn write(&self, buffer: &Buffer, bytes: &[u8]) {
        self.queue.write_buffer(buffer, 0, bytes);
        self.wait(self.queue.submit([]));
    }

    /// Like wgpu's staging belt: by a staging buffer that is mapped again when the device has read it.
    fn write_staged(&self, buffer: &Buffer, staging: &Buffer, bytes: &[u8]) {
        staging.get_mapped_range_mut(..).expect("it is mapped").copy_from_slice(bytes);
        staging.unmap();
        let submission = self.copy(staging, buffer);
        let mapped = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&mapped);
        staging.map_async(MapMode::Write, .., move |outcome| done.store(outcome.is_ok(), Ordering::Release));
        self.wait(submission);
        assert!(mapped.load(Ordering::Acquire));
    }

    /// By a staging buffer that is always the same one.
    fn read(&self, buffer: &Buffer, staging: &Buffer, bytes: &mut [u8]) {
        let submission = self.copy(buffer, staging);
        let mapped = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&mapped);
        staging.map_async(MapMode::Read, .., move |outcome| done.store(outcome.is_ok(), Ordering::Release));
        self.wait(submission);
        assert!(mapped.load(Ordering::Acquire));
        bytes.copy_from_slice(&staging.get_mapped_range(..).expect("it is mapped"));
        staging.unmap();
    }

    fn copy(&self, from: &Buffer, to: &Buffer) -> SubmissionIndex {
        let mut encoder = self.device.create_command_encoder(&CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(from, 0, to, 0, from.size());
        self.queue.submit([encoder.finish()])
    }

    fn buffer(&self, size: u64, usage: BufferUsages) -> Buffer {
        let descriptor = BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        self.device.create_buffer(&descriptor)
    }
}

fn found() -> Option<(Device, Native)> {
    let device = device_conformance::device_or_skip("wgpu")?;
    Some((device, Native::of(device)))
}

/// The other functions take the queue of the device, which ends that streams gather work. So this is the
/// first, and its direct side has its own device.
fn bursts(criterion: &mut Criterion) {
    let Some(device) = device_conformance::device_or_skip("wgpu") else { return };
    let adapter = device.with_driver(|open: &WgpuDevice| Ok(open.adapter().clone())).expect("it is open");
    let (opened, queue) =
        pollster::block_on(adapter.request_device(&DeviceDescriptor::default())).expect("it opens another");
    let native = Native { adapter, device: opened, queue };
    let mut group = criterion.benchmark_group("wgpu/bursts");
    let (stream, len) = (device.create_stream().expect("it is open"), 4096);
    let buffers = [(); 2].map(|()| device.allocate(len).expect("there is memory"));
    let uses = BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
    let [from, to] = [(); 2].map(|()| native.buffer(len as u64, uses));
    let ours = || {
        for _ in 0..100 {
            stream.copy(&buffers[0], &buffers[1]).expect("it is submitted");
        }
        stream.synchronize().expect("nothing fails");
    };
    beside(&mut group, "100 copies, beside 100 submissions", ours, || {
        let submissions: Vec<_> = (0..100).map(|_| native.copy(&from, &to)).collect();
        native.wait(submissions.into_iter().last().expect("there are some"));
    });
    beside(&mut group, "100 copies, beside one submission", ours, || {
        let mut encoder = native.device.create_command_encoder(&CommandEncoderDescriptor::default());
        for _ in 0..100 {
            encoder.copy_buffer_to_buffer(&from, 0, &to, 0, len as u64);
        }
        native.wait(native.queue.submit([encoder.finish()]));
    });
}

fn copies(criterion: &mut Criterion) {
    let Some((device, native)) = found() else { return };
    for len in SIZES {
        let mut group = criterion.benchmark_group(format!("wgpu/copies/{len}"));
        group.throughput(Throughput::Bytes(len as u64));
        let (bytes, mut to) = (vec![1_u8; len], vec![2_u8; len]);
        let [buffer, other] = [(); 2].map(|()| device.allocate(len).expect("there is memory"));
        for buffer in [&buffer, &other] {
            buffer.write(0, &bytes).expect("it is all of it");
        }
        let of_device = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let [direct, second] = [(); 2].map(|()| native.buffer(len as u64, of_device));
        let staging = native.buffer(len as u64, BufferUsages::MAP_READ | BufferUsages::COPY_DST);

        let ours = || buffer.write(0, &bytes).expect("it is all of it");
        beside(&mut group, "write", ours, || native.write(&direct, &bytes));
        let staged = native.buffer(len as u64, BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC);
        staged.map_async(MapMode::Write, .., |_| {});
        native.wait(native.queue.submit([]));
        let ours = || buffer.write(0, &bytes).expect("it is all of it");
        beside(&mut group, "write, beside own staging", ours, || {
            native.write_staged(&direct, &staged, &bytes)
        });
        let mut back = vec![3_u8; len];
        let ours = || buffer.read(0, &mut back).expect("it is all of it");
        beside(&mut group, "read", ours, || native.read(&direct, &staging, &mut to));
        let ours = || other.copy_from(&buffer).expect("it is all of both");
        beside(&mut group, "copy", ours, || native.wait(native.copy(&direct, &second)));
        assert!(to == bytes && back == bytes, "a copy that copies nothing is fast");
    }
}

fn submissions(criterion: &mut Criterion) {
    let Some((device, native)) = found() else { return };
    let stream = device.create_stream().expect("it is open");
    let mut group = criterion.benchmark_group("wgpu/submissions");
    let ours = || {
        let submit =
            |launch: &device_registry::backend::Launch<'_>| launch.stream_as::<WgpuStream>()?.submit([]);
        stream.launch(&[], submit).expect("it is submitted");
        stream.synchronize().expect("nothing fails");
    };
    beside(&mut group, "submit and synchronize", ours, || native.wait(native.queue.submit([])));
    let (buffer, len) = (device.allocate(4).expect("there is memory"), 4);
    let direct = native.buffer(len, BufferUsages::COPY_DST);
    let ours = || {
        stream.fill(&buffer, .., &[0]).expect("it is submitted");
        stream.synchronize().expect("nothing fails");
    };
    beside(&mut group, "clear four bytes and synchronize", ours, || {
        let mut encoder = native.device.create_command_encoder(&CommandEncoderDescriptor::default());
        encoder.clear_buffer(&direct, 0, None);
        native.wait(native.queue.submit([encoder.finish()]));
    });
}

fn allocations(criterion: &mut Criterion) {
    let Some((device, native)) = found() else { return };
    let mut group = criterion.benchmark_group("wgpu/allocations");
    let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
    for len in [1 << 10, 1 << 20] {
        let ours = || drop(device.allocate(len).expect("there is memory"));
        beside(&mut group, len.to_string(), ours, || drop(native.buffer(len as u64, usage)));
    }
}

fn opening(criterion: &mut Criterion) {
    let Some((_, native)) = found() else { return };
    let mut group = criterion.benchmark_group("wgpu/opening");
    group.sample_size(20);
    let name = device("wgpu:0").expect("it is linked");
    let ours = || {
        name.close().expect("it is open");
        time(|| name.open().expect("it was closed"))
    };
    let descriptor = DeviceDescriptor {
        required_features: native.device.features(),
        required_limits: native.device.limits(),
        ..DeviceDescriptor::default()
    };
    let direct = || {
        let mut opened = None;
        let request = || opened = Some(pollster::block_on(native.adapter.request_device(&descriptor)));
        let taken = time(request);
        // As the registry keeps what was closed.
        let (device, queue) = opened.expect("it was requested").expect("the adapter has another");
        device.destroy();
        std::mem::forget((device, queue));
        taken
    };
    beside_timed(&mut group, "open", ours, direct);
}

fn time(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

criterion_group!(benches, bursts, copies, submissions, allocations, opening);
criterion_main!(benches);
