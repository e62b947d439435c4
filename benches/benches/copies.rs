//! Blocking copies, beside the same copies of host slices.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use device_registry::{Device, device};
use device_registry_benches::beside;

device_registry::autoload!();

const SIZES: [usize; 6] = [64, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20];

fn copies(criterion: &mut Criterion) {
    for name in ["cpu", "openreg"] {
        let device = device(name).expect("it is linked");
        SIZES.into_iter().for_each(|len| copies_of(criterion, device, len));
    }
}

fn copies_of(criterion: &mut Criterion, device: Device, len: usize) {
    let mut group = criterion.benchmark_group(format!("copies/{}/{len}", device.name()));
    group.throughput(Throughput::Bytes(len as u64)).sample_size(if len > 16 << 20 { 20 } else { 100 });
    // Write to all of it: pages that were never written to are one shared page.
    let (from, mut to) = (vec![1_u8; len], vec![2_u8; len]);
    let [buffer, copy] = [3, 4].map(|byte| {
        let buffer = device.allocate(len).expect("there is memory");
        buffer.fill(0..len, &[byte]).expect("it is all of it");
        buffer
    });
    let mut read = vec![5_u8; len];

    let mut slices = || black_box(&mut to[..]).copy_from_slice(black_box(&from));
    let write = || black_box(&buffer).write(0, black_box(&from)).expect("it is all of it");
    beside(&mut group, "host to device", write, &mut slices);
    let read = || black_box(&buffer).read(0, black_box(&mut read)).expect("it is all of it");
    beside(&mut group, "device to host", read, &mut slices);
    let copy = || black_box(&copy).copy_from(black_box(&buffer)).expect("it is all of both");
    beside(&mut group, "device to device", copy, &mut slices);
}

criterion_group! {
    name = benches;
    config = device_registry_benches::criterion();
    targets = copies
}
criterion_main!(benches);
