//! Copies from one host memory to another through windows, beside plain copies of slices.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use device_registry::backend::{HostMemory, open_windows};

fn copies(criterion: &mut Criterion) {
    for len in [64, 4 << 10, 256 << 10, 64 << 20] {
        let mut group = criterion.benchmark_group(format!("copy/{len}"));
        group.throughput(Throughput::Bytes(len as u64)).sample_size(50);
        let (source, mut destination) = (vec![1_u8; len], vec![0_u8; len]);
        group.bench_function("slices", |bench| {
            bench.iter(|| black_box(&mut destination[..]).copy_from_slice(black_box(&source)));
        });
        let [source, destination] = [(); 2].map(|()| HostMemory::zeroed(len).expect("there is memory"));
        // Pages that were never written to are one shared page.
        source.write(0..len).expect("it is all of it").fill(1);
        group.bench_function("windows", |bench| {
            bench.iter(|| {
                let ([source], [mut destination]) =
                    open_windows([(black_box(&source), 0..len)], [(black_box(&destination), 0..len)])
                        .expect("it is all of both");
                destination.copy_from_slice(&source);
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = device_registry_benches::criterion();
    targets = copies
}
criterion_main!(benches);
