//! A program with eight linked backends that prints how many nanoseconds its first look-up took.

use std::time::Instant;

use device_registry::Device;
use device_registry::backend::{BACKENDS, BackendDescriptor};
use device_registry_benches::never;

device_registry::autoload!();

device_registry::backend::entry_points! {
    #[distributed_slice(BACKENDS)]
    static UNUSED_0: BackendDescriptor = BackendDescriptor::new("unused_0", never);
    #[distributed_slice(BACKENDS)]
    static UNUSED_1: BackendDescriptor = BackendDescriptor::new("unused_1", never);
    #[distributed_slice(BACKENDS)]
    static UNUSED_2: BackendDescriptor = BackendDescriptor::new("unused_2", never);
    #[distributed_slice(BACKENDS)]
    static UNUSED_3: BackendDescriptor = BackendDescriptor::new("unused_3", never);
    #[distributed_slice(BACKENDS)]
    static UNUSED_4: BackendDescriptor = BackendDescriptor::new("unused_4", never);
    #[distributed_slice(BACKENDS)]
    static UNUSED_5: BackendDescriptor = BackendDescriptor::new("unused_5", never);
    #[distributed_slice(BACKENDS)]
    static UNUSED_6: BackendDescriptor = BackendDescriptor::new("unused_6", never);
}

fn main() {
    let start = Instant::now();
    let device = Device::parse("openreg:0");
    let took = start.elapsed();
    assert!(device.is_ok(), "{device:?}");
    println!("{}", took.as_nanos());
}
