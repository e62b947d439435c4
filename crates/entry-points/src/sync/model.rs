//! Runs the models of this crate: loom tries the interleavings of a few threads.
//!
//! ```text
//! RUSTFLAGS='--cfg loom' cargo test --release -p entry-points --lib model::
//! ```
//!
//! Loom remembers only the last access to an object. A thread that reads a flag before it sets the flag hides
//! earlier reads of other threads. So in a model with a reader and a writer, the spawned thread is the
//! reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tries every interleaving of `body`.
pub(crate) fn in_every_order(body: impl Fn() + Send + Sync + 'static) {
    with_preemptions(None, body);
}

/// Tries every interleaving of `body` with at most this many preemptions.
pub(crate) fn with_preemptions(most: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = most;
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        body();
    });
    let count = count.load(Ordering::Relaxed);
    assert!(count > 1, "the threads never meet");
    println!("{count} interleavings");
}
