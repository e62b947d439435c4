//! The same work in several streams, beside all of it in one. The streams' threads share two cores evenly,
//! which the scheduler does not always see to.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use device_registry::{Stream, device};
use device_registry_benches::{beside, keep_on};

device_registry::autoload!();

const OPERATIONS: usize = 64;

fn streams(criterion: &mut Criterion) {
    for name in ["cpu", "openreg"] {
        let device = device(name).expect("it is linked");
        let create = |number: usize| {
            let stream = device.create_stream().expect("there is always another one");
            stream.host_call(move || keep_on(number % 2)).expect("it is accepted");
            stream
        };
        let streams: Vec<_> = (0..8).map(create).collect();
        let mut group = criterion.benchmark_group(format!("streams/{name}"));
        for count in [2, 4, 8] {
            beside(&mut group, count.to_string(), || work(&streams[..count]), || work(&streams[..1]));
        }
    }
}

fn work(streams: &[Stream]) {
    for stream in streams.iter().cycle().take(OPERATIONS) {
        stream.host_call(compute).expect("it is accepted");
    }
    streams.iter().for_each(|stream| stream.synchronize().expect("nothing fails"));
}

/// Work of some 50 µs that needs no memory.
fn compute() {
    let step = |state: u64, _| black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    black_box((0..40_000).fold(1, step));
}

criterion_group! {
    name = benches;
    config = device_registry_benches::criterion();
    targets = streams
}
criterion_main!(benches);
