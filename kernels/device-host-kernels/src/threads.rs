//! The threads that large calls are computed on.

use std::sync::LazyLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads of its own, as many as rayon has: a program may wait for a stream on all of rayon's, and would
/// wait for ever if the stream needed one of them.
static THREADS: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let name = |number| format!("kernels {number}");
    let threads =
        ThreadPoolBuilder::new().num_threads(rayon::current_num_threads()).thread_name(name).build();
    threads.inspect_err(|error| log::warn!("kernels use rayon's threads, without their own: {error}")).ok()
});

/// Calls `work` on one of the threads, where rayon's iterators use the others too, and waits for it.
pub(crate) fn on_all<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    match &*THREADS {
        Some(threads) => threads.install(work),
        None => work(),
    }
}
