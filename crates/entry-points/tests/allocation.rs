//! Looking up and using what is loaded allocates nothing, and setting an option again and again keeps
//! nothing.

#![allow(missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use entry_points::{EntryPoint, Group, LoadFailure, OptionSpec};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static FREES: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counters are plain thread-local numbers
// that neither allocate nor have a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        FREES.set(FREES.get() + 1);
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

#[test]
fn an_option_that_a_program_sets_before_each_retry_keeps_no_earlier_value() {
    static GROUP: Group<u32> = Group::new("test.retries");
    static POINT: EntryPoint<u32> = EntryPoint::with_options(
        "x",
        |options| Err(LoadFailure::new(options.get("y").unwrap_or_default())),
        &[OptionSpec::new("y", "anything")],
    );
    GROUP.register(&POINT).unwrap();
    let kept = || ALLOCATIONS.get() - FREES.get();
    let attempt = |number: u32| {
        GROUP.set_option("x", "y", number.to_string()).unwrap();
        let error = GROUP.retry("x").unwrap_err().to_string();
        assert!(error.contains(&format!(": {number}")), "{error}");
    };
    (0..10).for_each(attempt);
    let before = kept();
    (10..1000).for_each(attempt);
    assert_eq!(kept(), before);
}
