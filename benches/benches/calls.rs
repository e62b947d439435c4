//! What a call costs that goes through the registry, and what look-ups cost when several threads make them.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use device_registry::backend::Backend;
use device_registry::{Device, device, device_count};

device_registry::autoload!();

/// Counting devices, which takes openreg no time: through a plain reference, through the entry in the registry, and
/// as a user does it, with panics caught and cycles seen.
fn call(criterion: &mut Criterion) {
    let device = device("openreg").expect("it is linked");
    let entry = device.backend();
    let backend: &dyn Backend = entry.load().expect("it loads");
    let mut group = criterion.benchmark_group("call");
    group.bench_function("virtual call", |bench| {
        bench.iter(|| black_box(backend).device_count().expect("it counts"));
    });
    group.bench_function("through the entry", |bench| {
        bench.iter(|| black_box(entry).load().expect("it is loaded").device_count().expect("it counts"));
    });
    group.bench_function("device_count", |bench| {
        bench.iter(|| device_count(black_box("openreg")).expect("it counts"));
    });
}

/// One look-up each on so many threads at once.
fn threads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse on threads");
    for threads in [1, 2, 8] {
        group.bench_function(threads.to_string(), |bench| {
            bench.iter_custom(|times| on_threads(threads, times));
        });
    }
}

/// The time that the slowest of the threads takes for so many look-ups. Each has its own clock: this thread may well
/// be the last to run again when all are let go, with fewer cores than threads.
fn on_threads(threads: usize, times: u64) -> Duration {
    let start = Barrier::new(threads);
    let look_up = || {
        start.wait();
        let start = Instant::now();
        for _ in 0..times {
            black_box(Device::parse(black_box("openreg:0")).expect("it is linked"));
        }
        start.elapsed()
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(look_up)).collect();
        let took = running.into_iter().map(|thread| thread.join().expect("it finds what is linked"));
        took.max().expect("there is a thread")
    })
}

criterion_group! {
    name = benches;
    config = device_registry_benches::criterion();
    targets = call, threads
}
criterion_main!(benches);
