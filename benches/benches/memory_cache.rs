//! Allocating and freeing on a device that keeps freed memory, beside its driver and beside a pool of a
//! program's own.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use device_registry::{Buffer, Device, Stream, device};
use device_registry_benches::{beside, beside_timed};

device_registry::autoload!();

const SIZES: [usize; 4] = [64 << 10, 1 << 20, 16 << 20, 64 << 20];

fn allocations(criterion: &mut Criterion) {
    for name in ["opencl", "wgpu"] {
        let device = device(name).expect("it is linked");
        if device.open().is_err() {
            println!("there is no driver for {name}");
            continue;
        }
        for len in SIZES {
            let mut group = criterion.benchmark_group(format!("memory_cache/{name}/{len}"));
            let pool = Mutex::new(vec![vec![0_u8; len]]);
            beside(&mut group, "beside a pool of `Vec`", || on(device, len), || of_pool(&pool));
            let timed = |limit| {
                device.set_cache_limit(limit).expect("it is open");
                // The first one after a limit of 0 finds the cache empty.
                on(device, len);
                let start = Instant::now();
                on(device, len);
                start.elapsed()
            };
            beside_timed(&mut group, "beside the driver", || timed(u64::MAX), || timed(0));
            device.set_cache_limit(u64::MAX).expect("it is open");
        }
    }
}

fn on(device: Device, len: usize) {
    drop(black_box(black_box(device).allocate(black_box(len)).expect("there is memory")));
}

fn of_pool(pool: &Mutex<Vec<Vec<u8>>>) {
    let taken = pool.lock().expect("no panic").pop().expect("it has one");
    pool.lock().expect("no panic").push(black_box(taken));
}

const OPERATIONS: usize = 10_000;

/// Sizes as a program with layers of several widths has them.
fn size(operation: usize) -> usize {
    [3_000, 12_000, 48_000, 100_000, 7_000, 400_000, 25_000][operation % 7]
}

fn temporaries(criterion: &mut Criterion) {
    let device = device("opencl").expect("it is linked");
    if device.open().is_err() {
        return;
    }
    let stream = device.create_stream().expect("the device has streams");
    device.empty_cache().expect("it is open");
    run(&stream, |n| stream.allocate(size(n)).expect("there is memory"));
    let reserved = device.memory_statistics().expect("this process has opened it").reserved;
    let taken: usize = (0..7).map(size).sum();
    println!("reserved for temporary buffers: {reserved} bytes, beside {taken} bytes that were taken before");
    let before: Vec<Buffer> = (0..7).map(|n| device.allocate(size(n)).expect("there is memory")).collect();
    let mut group = criterion.benchmark_group("memory_cache/opencl/10,000 operations");
    beside(
        &mut group,
        "beside memory that was taken before",
        || run(&stream, |n| stream.allocate(size(n)).expect("there is memory")),
        || run(&stream, |n| before[n % 7].clone()),
    );
    group.finish();
}

fn run(stream: &Stream, memory: impl Fn(usize) -> Buffer) {
    for operation in 0..OPERATIONS {
        let buffer = memory(operation);
        stream.fill(&buffer, .., &[operation as u8]).expect("the stream works");
    }
    stream.synchronize().expect("the stream works");
}

criterion_group! {
    name = benches;
    config = device_registry_benches::criterion();
    targets = allocations, temporaries
}
criterion_main!(benches);
