//! `openreg:0` among 1000 linked backends.

use device_registry_benches::{criterion, parse};

// Not those for hardware: how many are linked is what this is about.
device_registry::autoload!(only device_openreg);

device_registry_benches::link!(999 :);

criterion::criterion_group! {
    name = among_1000;
    config = criterion();
    targets = parse
}
criterion::criterion_main!(among_1000);
