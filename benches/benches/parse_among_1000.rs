//! `openreg:0` among 1000 linked backends.

use device_registry_benches::{criterion, parse};

device_registry::autoload!();

device_registry_benches::link!(999 :);

criterion::criterion_group! {
    name = among_1000;
    config = criterion();
    targets = parse
}
criterion::criterion_main!(among_1000);
