//! `openreg:0` among 1 linked backend.

use device_registry_benches::{criterion, parse};

// Not those for hardware: how many are linked is what this is about.
device_registry::autoload!(only device_openreg);

criterion::criterion_group! {
    name = among_1;
    config = criterion();
    targets = parse
}
criterion::criterion_main!(among_1);
