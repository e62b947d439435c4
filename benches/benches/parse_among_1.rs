//! `openreg:0` among 1 linked backend.

use device_registry_benches::{criterion, parse};

device_registry::autoload!();

criterion::criterion_group! {
    name = among_1;
    config = criterion();
    targets = parse
}
criterion::criterion_main!(among_1);
