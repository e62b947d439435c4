//! The cost of a call through the registry, and of look-ups on several threads.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use device_registry::backend::Backend;
use device_registry::{Device, device, device_count};

device_registry::autoload!();

/// Counts devices, for which openreg returns a number: through a plain reference, through the entry in the
/// registry, and by `device_count`, which catches panics and detects cycles.
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

/// Look-ups on several threads at once.
fn threads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse on threads");
    for threads in [1, 2, 8] {
        group.bench_function(threads.to_string(), |bench| {
            bench.iter_custom(|times| on_threads(threads, times));
        });
    }
}

/// The time that the slowest of the threads takes for `times` look-ups. Each thread has its own clock: with
/// fewer cores than threads, this thread may be the last to continue after the barrier.
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
