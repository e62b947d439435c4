//! Work of a stream is submitted together, when a thread waits for it.

use std::cell::Cell;

use device_registry::backend::{BackendError, Launch};
use device_registry::{Buffer, Device, Stream};
use device_wgpu::wgpu::{BufferDescriptor, BufferUsages, CommandBuffer, CommandEncoderDescriptor};
use device_wgpu::{WgpuDevice, WgpuMemory, WgpuStream};

device_registry::autoload!();

/// Counts the submissions of each thread, and the pieces of work in them, by what is logged.
struct Submissions;

thread_local!(static SUBMITTED: Cell<(usize, usize)> = const { Cell::new((0, 0)) });

impl log::Log for Submissions {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let message = record.args().to_string();
        if let Some(pieces) = message.strip_prefix("device-wgpu submits ") {
            let pieces: usize = pieces.split(' ').next().unwrap().parse().unwrap();
            SUBMITTED.with(|submitted| submitted.set((submitted.get().0 + 1, submitted.get().1 + pieces)));
        }
    }

    fn flush(&self) {}
}

/// How many submissions this thread makes meanwhile, and how many pieces of work are in them.
fn submitted(run: impl FnOnce()) -> (usize, usize) {
    SUBMITTED.with(|submitted| submitted.set((0, 0)));
    run();
    SUBMITTED.get()
}

fn stream() -> Option<(Device, Stream)> {
    // Another test may have been first.
    let _ = log::set_logger(&Submissions);
    log::set_max_level(log::LevelFilter::Trace);
    let device = device_conformance::device_or_skip("wgpu")?;
    Some((device, device.create_stream().unwrap()))
}

fn bytes(buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len()];
    buffer.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn writes_fills_copies_and_reads_are_one_submission() {
    let Some((device, stream)) = stream() else { return };
    let (buffer, other) = (device.allocate(4096).unwrap(), device.allocate(4096).unwrap());
    let mut reads = Vec::new();
    let enqueue = || {
        stream.fill(&buffer, .., &[7]).unwrap();
        for place in 0..20_u8 {
            stream.write(&buffer, usize::from(place) * 4, vec![place; 4]).unwrap();
        }
        stream.copy(&buffer, &other).unwrap();
        stream.copy(&other.slice(..16).unwrap(), &other.slice(2048..2064).unwrap()).unwrap();
        reads.extend([0..8, 76..84].map(|range| stream.read(&other, range).unwrap()));
        drop(stream.record().unwrap());
    };
    assert_eq!(submitted(enqueue), (0, 0), "no thread waits");
    assert_eq!(submitted(|| stream.synchronize().unwrap()), (1, 25));
    let read: Vec<_> = reads.into_iter().map(|read| read.wait().unwrap().to_vec()).collect();
    assert_eq!(read, [[0, 0, 0, 0, 1, 1, 1, 1], [19, 19, 19, 19, 7, 7, 7, 7]]);
    let expected: Vec<u8> = (0..4096).map(|at| if at < 80 { (at / 4) as u8 } else { 7 }).collect();
    assert_eq!(bytes(&other)[..2048], expected[..2048]);
    assert_eq!(bytes(&other)[2048..2064], expected[..16]);
}

#[test]
fn a_read_an_event_and_a_wait_of_another_stream_submit_what_they_wait_for() {
    let Some((device, stream)) = stream() else { return };
    let (buffer, later) = (device.allocate(64).unwrap(), device.create_stream().unwrap());
    let fill = |byte| stream.fill(&buffer, .., &[byte]).unwrap();

    fill(1);
    let read = stream.read(&buffer, ..).unwrap();
    assert_eq!(submitted(|| assert_eq!(*read.wait().unwrap(), [1; 64])), (1, 2));

    fill(2);
    let event = stream.record().unwrap();
    assert_eq!(submitted(|| event.synchronize().unwrap()), (1, 1));
    assert!(event.query().unwrap());
    assert_eq!(bytes(&buffer), [2; 64]);

    fill(3);
    let event = stream.record().unwrap();
    assert_eq!(submitted(|| later.wait_event(&event).unwrap()), (1, 1));
    let copy = device.allocate(64).unwrap();
    later.copy(&buffer, &copy).unwrap();
    later.synchronize().unwrap();
    assert_eq!(bytes(&copy), [3; 64]);
}

#[test]
fn a_device_begins_when_there_is_enough_to_do() {
    let Some((device, stream)) = stream() else { return };
    let buffer = device.allocate(2 << 20).unwrap();
    let many = || (0..200).for_each(|_| stream.fill(&buffer, 0..4, &[1]).unwrap());
    let (submissions, pieces) = submitted(many);
    assert!((2..=4).contains(&submissions) && pieces >= 128, "{submissions} of {pieces}");
    stream.synchronize().unwrap();
    assert_eq!(submitted(|| stream.fill(&buffer, .., &[2]).unwrap()), (1, 1), "it moves 2 MiB");
    stream.synchronize().unwrap();
    assert_eq!(bytes(&buffer), vec![2; 2 << 20]);
}

/// Commands that copy the first four bytes of a buffer to the next four.
fn copy_on(launch: &Launch<'_>) -> Result<[CommandBuffer; 1], BackendError> {
    let [Some(span)] = launch.spans() else { return Err(BackendError::invalid("one buffer")) };
    let (memory, at): (&WgpuMemory, _) = (span.memory_as()?, span.offset() as u64);
    launch.driver_as::<WgpuDevice>()?.checked(|device| {
        let usage = BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let between = BufferDescriptor { label: None, size: 4, usage, mapped_at_creation: false };
        let between = device.create_buffer(&between);
        let mut encoder = device.create_command_encoder(&CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(memory.buffer(), at, &between, 0, 4);
        encoder.copy_buffer_to_buffer(&between, 0, memory.buffer(), at + 4, 4);
        [encoder.finish()]
    })
}

#[test]
fn kernels_are_submitted_with_the_other_work_in_order() {
    let Some((device, stream)) = stream() else { return };
    let buffer = device.allocate(44).unwrap();
    let enqueue = || {
        stream.fill(&buffer, .., &[0]).unwrap();
        stream.write(&buffer, 0, vec![9; 4]).unwrap();
        for place in 0..9 {
            let two = buffer.slice(place * 4..place * 4 + 8).unwrap();
            let kernel = |launch: &Launch<'_>| launch.stream_as::<WgpuStream>()?.enqueue(copy_on(launch)?);
            stream.launch(&[&two], kernel).unwrap();
        }
        stream.write(&buffer, 0, vec![8; 4]).unwrap();
    };
    assert_eq!(submitted(enqueue), (0, 0));
    assert_eq!(submitted(|| stream.synchronize().unwrap()), (1, 12));
    let expected: Vec<u8> = [8; 4].into_iter().chain([9; 36]).chain([0; 4]).collect();
    assert_eq!(bytes(&buffer), expected);
}

#[test]
fn commands_that_are_submitted_at_once_come_behind_what_is_gathered() {
    let Some((device, stream)) = stream() else { return };
    let buffer = device.allocate(8).unwrap();
    stream.write(&buffer, 0, vec![5, 5, 5, 5, 0, 0, 0, 0]).unwrap();
    let kernel = |launch: &Launch<'_>| launch.stream_as::<WgpuStream>()?.submit(copy_on(launch)?);
    // The kernel's own submission is not the stream's.
    assert_eq!(submitted(|| stream.launch(&[&buffer], kernel).unwrap()), (1, 1));
    stream.synchronize().unwrap();
    assert_eq!(bytes(&buffer), [5; 8]);
}

#[test]
fn a_refused_command_is_a_failure_of_its_stream_and_harms_no_other() {
    let Some((device, stream)) = stream() else { return };
    let (good, bad) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    let (other, kept) = (device.create_stream().unwrap(), device.allocate(64).unwrap());
    let destroy = |launch: &Launch<'_>| {
        let [Some(span)] = launch.spans() else { return Err(BackendError::invalid("one buffer")) };
        span.memory_as::<WgpuMemory>()?.buffer().destroy();
        Ok(())
    };
    stream.launch(&[&bad], destroy).unwrap();
    stream.fill(&good, .., &[1]).unwrap();
    stream.fill(&bad, .., &[0]).unwrap();
    let (event, read) = (stream.record().unwrap(), stream.read(&good, ..).unwrap());
    other.fill(&kept, .., &[3]).unwrap();

    let failed = event.synchronize().unwrap_err().to_string();
    assert!(failed.contains("destroyed"), "{failed}");
    let failed = read.wait().unwrap_err().to_string();
    assert!(failed.contains("destroyed"), "{failed}");
    other.synchronize().unwrap();
    assert_eq!(bytes(&kept), [3; 64]);

    let _ = stream.synchronize();
    stream.fill(&good, .., &[4]).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(bytes(&good), [4; 64]);
}
