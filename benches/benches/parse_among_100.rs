//! `openreg:0` among 100 linked backends.

use device_registry_benches::{criterion, parse};

// Not those for hardware: how many are linked is what this is about.
device_registry::autoload!(only device_openreg);

device_registry_benches::link!(99 :);

criterion::criterion_group! {
    name = among_100;
    config = criterion();
    targets = parse
}
criterion::criterion_main!(among_100);
