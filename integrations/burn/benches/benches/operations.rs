//! One operation, on burn's engine directly, on registered devices through each door, and from eight
//! threads.

use std::hint::black_box;
use std::thread;

use burn::tensor::{Device, Tensor};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use device_registry_benches::beside;

device_registry::autoload!();

#[cfg(feature = "burn-0-23")]
fn devices() -> [(&'static str, Device); 3] {
    [
        ("flex", Device::flex()),
        ("cpu, group, kernels", device_burn::group::device("cpu").unwrap()),
        ("openreg:0, group, fallback", device_burn::group::device("openreg:0").unwrap()),
    ]
}

#[cfg(not(feature = "burn-0-23"))]
fn devices() -> [(&'static str, Device); 4] {
    [
        ("flex", Device::flex()),
        ("cpu, patch, kernels", device_burn::patch::device("cpu").unwrap()),
        ("openreg:0, patch, fallback", device_burn::patch::device("openreg:0").unwrap()),
        ("cpu, loop-back, kernels", device_burn::loopback::device("cpu").unwrap()),
    ]
}

/// Chains of `x + y`: burn releases each sum at its last use.
fn add(group: &mut BenchmarkGroup<'_, WallTime>, len: usize) {
    for (name, device) in devices() {
        let y = Tensor::<1>::ones([len], &device);
        let mut x = Tensor::<1>::ones([len], &device);
        group.bench_function(name, |bencher| {
            bencher.iter(|| x = x.clone() + y.clone());
            // What is enqueued is done before the next one is measured.
            black_box(x.clone().into_data());
        });
    }
}

/// Kernels beside the fallback, on devices whose memory is the host's, and in turns.
fn kernels(c: &mut Criterion) {
    let mut group = c.benchmark_group("add, 1 element");
    let chain = |name| {
        let device = device_burn::device(name).unwrap();
        let y = Tensor::<1>::ones([1], &device);
        let mut x = y.clone();
        move || {
            for _ in 0..100 {
                x = x.clone() + y.clone();
            }
            device.sync().unwrap();
        }
    };
    beside(&mut group, "100 by kernels, beside the fallback", chain("cpu"), chain("openreg:0"));
}

fn operations(c: &mut Criterion) {
    for len in [1, 1024, 1 << 20] {
        add(&mut c.benchmark_group(format!("add, {len} elements")), len);
    }
    let mut group = c.benchmark_group("matmul, 64 x 64");
    for (name, device) in devices() {
        let a = Tensor::<2>::ones([64, 64], &device);
        group.bench_function(name, |bencher| bencher.iter(|| a.clone().matmul(a.clone())));
    }
    group.finish();
}

/// The same work by one thread and by eight, each with tensors of its own.
fn threads(c: &mut Criterion) {
    const STEPS: usize = 8 * 500;
    let mut group = c.benchmark_group("4,000 additions of 64 elements");
    group.sample_size(20);
    for (name, device) in [("flex", Device::flex()), ("cpu, kernels", device_burn::device("cpu").unwrap())] {
        for count in [1, 8] {
            group.bench_function(format!("{name}, {count} threads"), |bencher| {
                bencher.iter(|| {
                    thread::scope(|scope| {
                        for _ in 0..count {
                            scope.spawn(|| {
                                let mut x = Tensor::<1>::ones([64], &device);
                                for _ in 0..STEPS / count {
                                    x = x.clone() + x;
                                }
                                black_box(x);
                            });
                        }
                    });
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, operations, kernels, threads);
criterion_main!(benches);
