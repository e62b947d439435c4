//! Allocating and freeing on a device, beside the allocator of the program.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use device_registry::{Device, device};
use device_registry_benches::beside;

device_registry::autoload!();

const SIZES: [usize; 5] = [64, 4 << 10, 64 << 10, 1 << 20, 64 << 20];

/// A device of the host gives zeros, so that `alloc_zeroed` does the same work; `alloc` does less.
fn allocations(criterion: &mut Criterion) {
    for name in ["cpu", "openreg"] {
        let device = device(name).expect("it is linked");
        for len in SIZES {
            let mut group = criterion.benchmark_group(format!("allocations/{name}/{len}"));
            let layout = Layout::array::<u8>(len).expect("it is short");
            beside(&mut group, "beside alloc", || on(device, len), || by(alloc, layout));
            beside(&mut group, "beside alloc_zeroed", || on(device, len), || by(alloc_zeroed, layout));
        }
    }
}

fn on(device: Device, len: usize) {
    drop(black_box(black_box(device).allocate(black_box(len)).expect("there is memory")));
}

fn by(allocate: unsafe fn(Layout) -> *mut u8, layout: Layout) {
    // SAFETY: no length among the `SIZES` is zero.
    let memory = unsafe { allocate(black_box(layout)) };
    assert!(!memory.is_null());
    // SAFETY: it was taken by this layout, a line above.
    unsafe { dealloc(black_box(memory), layout) };
}

criterion_group! {
    name = benches;
    config = device_registry_benches::criterion();
    targets = allocations
}
criterion_main!(benches);
