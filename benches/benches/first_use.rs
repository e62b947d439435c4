//! The cost of the first look-up, which reads the switches, evaluates the entries and builds the index.

use std::hint::black_box;
use std::process::Command;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use device_registry::backend::{Backend, BackendDescriptor};
use device_registry::registry::Group;
use device_registry_benches::never;
use entry_points::__private::{Collected, SliceId};

static POINTS: [BackendDescriptor; 8] = [
    BackendDescriptor::new("openreg", never).in_package("device-openreg", "0.1.0"),
    BackendDescriptor::new("acme", never).in_package("device-acme", "0.1.0"),
    BackendDescriptor::new("cuda", never).in_package("device-cuda", "0.1.0"),
    BackendDescriptor::new("opencl", never).in_package("device-opencl", "0.1.0"),
    BackendDescriptor::new("wgpu", never).in_package("device-wgpu", "0.1.0"),
    BackendDescriptor::new("hip", never).in_package("device-hip", "0.1.0"),
    BackendDescriptor::new("tpu", never).in_package("device-tpu", "0.1.0"),
    BackendDescriptor::new("npu", never).in_package("device-npu", "0.1.0"),
];

struct Points;

impl Collected for Points {
    type Plugin = dyn Backend;

    fn slice() -> SliceId {
        SliceId::of::<Self>("POINTS", module_path!(), None, false)
    }

    fn name() -> &'static str {
        "device.benches"
    }
}

/// A new, unused group, as `group!` declares it.
fn new_group() -> &'static Group<dyn Backend> {
    let group = Group::new("device.benches").switches("DEVICE_BENCHES");
    Box::leak(Box::new(group.collected(|| &POINTS, Points::slice)))
}

fn first_use(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("first use/8");
    touch_memory();
    group.bench_function("of a new group", |bench| {
        bench.iter_batched(new_group, |group| group.get(black_box("openreg")), BatchSize::SmallInput);
    });
    group.bench_function("in a new process", |bench| {
        bench.iter_custom(|times| (0..times).map(|_| in_a_new_process()).sum());
    });
}

/// Leaves touched memory in the allocator. Every iteration leaks a group, and page faults would take half of
/// the time.
fn touch_memory() {
    let memory: Vec<_> = (0..200_000).map(|_| Box::new([1_u8; 1000])).collect();
    // Above it, so that the allocator does not return the memory to the system.
    let _ = Box::leak(Box::new([0_u8; 1000]));
    drop(black_box(memory));
}

fn in_a_new_process() -> Duration {
    let output = Command::new(env!("CARGO_BIN_EXE_first_use")).output().expect("the program starts");
    let nanoseconds = String::from_utf8(output.stdout).expect("it prints a number");
    Duration::from_nanos(nanoseconds.trim().parse().expect("it prints a number"))
}

criterion_group! {
    name = benches;
    // Short, because every iteration leaks a group or starts a process.
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(200));
    targets = first_use
}
criterion_main!(benches);
