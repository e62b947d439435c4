//! Parsing `openreg:0` among 1 to 10,000 backends, beside a split and a `HashMap`.
//!
//! All but openreg are registered while the program runs. Linked and registered backends share one index.

use std::collections::HashMap;
use std::hint::black_box;

use criterion::Criterion;
use device_registry::backend::BackendDescriptor;
use device_registry::{Device, backends};
use device_registry_benches::{criterion, never};

// Not the backends for hardware, which would count.
device_registry::autoload!(only device_openreg);

fn parse(criterion: &mut Criterion) {
    for count in [1, 8, 100, 1000, 10_000] {
        register_up_to(count);
        parse_among(criterion, count);
    }
}

/// Registers backends until there are `count` besides the cpu.
fn register_up_to(count: usize) {
    for number in backends().len() - 1..count {
        let name = format!("registered_{number}").leak();
        let descriptor = Box::leak(Box::new(BackendDescriptor::new(name, never)));
        backends().register(descriptor).expect("the name is new");
    }
}

fn parse_among(criterion: &mut Criterion, count: usize) {
    let map: HashMap<&str, _> = backends().iter().map(|entry| (entry.name(), entry)).collect();
    let mut group = criterion.benchmark_group(format!("parse/{count}"));
    group.bench_function("registry", |bench| {
        bench.iter(|| Device::parse(black_box("openreg:0")).expect("it is linked"));
    });
    group.bench_function("HashMap", |bench| {
        bench.iter(|| {
            let (name, index) = split(black_box("openreg:0"));
            (*map.get(name).expect("it is linked"), index)
        });
    });
}

/// The name and the index, without a grammar.
fn split(text: &str) -> (&str, Option<u16>) {
    match text.split_once(':') {
        Some((name, index)) => (name, Some(index.parse().expect("it is a number"))),
        None => (text, None),
    }
}

criterion::criterion_group! {
    name = benches;
    config = criterion();
    targets = parse
}
criterion::criterion_main!(benches);
