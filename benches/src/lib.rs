//! Parsing `openreg:0` among any number of backends, beside two ways without a registry.
//!
//! How many entries are linked is a fact of a binary, so that there is one benchmark for each number.

mod beside;
mod cores;

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

use criterion::Criterion;
use device_registry::backend::{BACKENDS, Backend, BackendDescriptor, LoadFailure};
use device_registry::{Device, backends};

pub use crate::beside::{beside, beside_timed};
pub use crate::cores::{Cores, keep_on};

/// Links one backend that nobody asks for, or 7, 9, 10, 99, 100 or 999 of them; the digits after the number become
/// part of their names.
#[macro_export]
macro_rules! link {
    (1 : $($digits:literal)*) => {
        const _: () = {
            #[linkme::distributed_slice(device_registry::backend::BACKENDS)]
            static UNUSED: device_registry::backend::BackendDescriptor =
                device_registry::backend::BackendDescriptor::new(concat!("unused_", $($digits),*), $crate::never);
        };
    };
    (7 : $($digits:literal)*) => { $crate::link!(@seven 1 : $($digits)*); };
    (9 : $($digits:literal)*) => { $crate::link!(@nine 1 : $($digits)*); };
    (10 : $($digits:literal)*) => { $crate::link!(@nine 1 : $($digits)*); $crate::link!(1 : $($digits)* 9); };
    (99 : $($digits:literal)*) => { $crate::link!(@nine 10 : $($digits)*); $crate::link!(9 : $($digits)* 9); };
    (100 : $($digits:literal)*) => { $crate::link!(@nine 10 : $($digits)*); $crate::link!(10 : $($digits)* 9); };
    (999 : $($digits:literal)*) => { $crate::link!(@nine 100 : $($digits)*); $crate::link!(99 : $($digits)* 9); };
    (@nine $each:tt : $($digits:literal)*) => {
        $crate::link!(@seven $each : $($digits)*);
        $crate::link!($each : $($digits)* 7);
        $crate::link!($each : $($digits)* 8);
    };
    (@seven $each:tt : $($digits:literal)*) => {
        $crate::link!($each : $($digits)* 0);
        $crate::link!($each : $($digits)* 1);
        $crate::link!($each : $($digits)* 2);
        $crate::link!($each : $($digits)* 3);
        $crate::link!($each : $($digits)* 4);
        $crate::link!($each : $($digits)* 5);
        $crate::link!($each : $($digits)* 6);
    };
}

/// The `load` of a backend that nobody asks for.
///
/// # Panics
///
/// Always.
#[allow(clippy::missing_errors_doc)]
pub fn never() -> Result<Box<dyn Backend>, LoadFailure> {
    unreachable!("a backend was loaded that nobody asked for")
}

/// A run that is long enough for ratios and short enough for a coffee.
#[must_use]
pub fn criterion() -> Criterion {
    Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2))
}

/// Registers backends until there are `count`, not counting the cpu.
pub fn register_up_to(count: usize) {
    for n in backends().len() - 1..count {
        let name = format!("registered_{n}").leak();
        let point = Box::leak(Box::new(BackendDescriptor::new(name, never)));
        backends().register(point).expect("the name is new");
    }
}

/// `openreg:0` among the backends that there are now: through the registry, through a `HashMap` and, for those that
/// are linked, by walking through them.
///
/// The walk is the longest there is: linkers put what the program itself declares first, so that openreg is the last
/// entry. On average it would be half as long. No other name has as many letters, so that it compares lengths only.
pub fn parse(criterion: &mut Criterion) {
    let entries: Vec<_> = backends().iter().collect();
    let map: HashMap<&str, _> = entries.iter().map(|entry| (entry.name(), *entry)).collect();
    let mut group = criterion.benchmark_group(format!("parse/{}", entries.len() - 1));
    group.bench_function("registry", |bench| {
        bench.iter(|| Device::parse(black_box("openreg:0")).expect("it is linked"));
    });
    group.bench_function("HashMap", |bench| {
        bench.iter(|| {
            let (name, index) = split(black_box("openreg:0"));
            (*map.get(name).expect("it is linked"), index)
        });
    });
    if BACKENDS.len() == entries.len() - 1 {
        group.bench_function("linear scan", |bench| {
            bench.iter(|| {
                let (name, index) = split(black_box("openreg:0"));
                (BACKENDS.iter().find(|backend| backend.name() == name).expect("it is linked"), index)
            });
        });
    }
}

/// What one would write without a grammar.
fn split(text: &str) -> (&str, Option<u16>) {
    match text.split_once(':') {
        Some((name, index)) => (name, Some(index.parse().expect("it is a number"))),
        None => (text, None),
    }
}
