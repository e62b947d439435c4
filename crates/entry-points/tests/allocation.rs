//! Looking up and using what is loaded allocates nothing.

#![allow(missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use entry_points::{EntryPoint, Group};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counter is a plain thread-local number that
// neither allocates nor has a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static GROUP: Group<u32> = Group::new("test.quiet");
static POINT: EntryPoint<u32> = EntryPoint::new("x", || Ok(Box::new(7)));

#[test]
fn using_a_loaded_name_allocates_nothing() {
    GROUP.register(&POINT).unwrap();
    GROUP.load("x").unwrap();
    let before = ALLOCATIONS.get();
    for _ in 0..1000 {
        let entry = GROUP.usable("x").unwrap();
        assert_eq!(*entry.load().unwrap(), 7);
        assert_eq!(*GROUP.load("x").unwrap(), 7);
        assert!(GROUP.get("y").is_none());
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);

    // The counter does count: an error is made of text.
    assert!(GROUP.load("y").is_err());
    assert!(ALLOCATIONS.get() > before);
}
