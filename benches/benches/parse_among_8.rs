//! `openreg:0` among 8 linked backends, and then among 10,000, of which the others are registered while the program
//! runs.

use criterion::Criterion;
use device_registry_benches::{criterion, parse, register_up_to};

// Not those for hardware: how many are linked is what this is about.
device_registry::autoload!(only device_openreg);

device_registry_benches::link!(7 :);

fn parse_among_more(criterion: &mut Criterion) {
    register_up_to(10_000);
    parse(criterion);
}

criterion::criterion_group! {
    name = among_8;
    config = criterion();
    targets = parse, parse_among_more
}
criterion::criterion_main!(among_8);
