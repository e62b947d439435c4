//! One epoch of each training program, on Flex, by the kernels of devices, and only by the fallback.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use programs::cases::{CASES, Size, Unit};
use programs::rounds::{FLEX, Place};

device_registry::autoload!();

fn places() -> Vec<Place> {
    let mut names = vec![FLEX, "cpu", "openreg:1", "mycpu"];
    if device_registry::is_available("opencl") {
        names.push("opencl:0");
    }
    names.into_iter().map(|name| Place::open(name).unwrap()).collect()
}

fn programs(c: &mut Criterion) {
    let places = places();
    for case in CASES.iter().filter(|case| case.unit == Unit::Epoch) {
        let mut group = c.benchmark_group(format!("{}, one epoch", case.name));
        group.sample_size(10).measurement_time(Duration::from_secs(2));
        for place in &places {
            group.bench_function(&place.name, |bencher| {
                // Each epoch begins with new weights, which do not count.
                bencher
                    .iter_custom(|times| (0..times).map(|_| place.run(case, Size::Full).unwrap().time).sum());
            });
        }
        group.finish();
    }
}

criterion_group!(benches, programs);
criterion_main!(benches);
