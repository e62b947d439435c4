//! `openreg:0` among 8 linked backends, and then among 10,000, of which the others are registered while the program
//! runs.

use criterion::Criterion;
use device_registry_benches::{criterion, parse, register_up_to};

device_registry::autoload!();

device_registry_benches::link!(1 : 0);
device_registry_benches::link!(1 : 1);
device_registry_benches::link!(1 : 2);
device_registry_benches::link!(1 : 3);
device_registry_benches::link!(1 : 4);
device_registry_benches::link!(1 : 5);
device_registry_benches::link!(1 : 6);

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
