//! A program with eight linked backends that prints how many nanoseconds its first look-up took.

use std::time::Instant;

use device_registry::Device;

device_registry::autoload!();

device_registry_benches::link!(7 :);

fn main() {
    let start = Instant::now();
    let device = Device::parse("openreg:0");
    let took = start.elapsed();
    assert!(device.is_ok(), "{device:?}");
    println!("{}", took.as_nanos());
}
