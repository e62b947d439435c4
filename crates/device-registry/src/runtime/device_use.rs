//! Which threads are within a host call: those may not use devices.
//!
//! The rule is CUDA's, whose host functions may call nothing of it, and it is kept for every device: a host call that
//! waits for a stream can be the one that the stream waits for. Memory that is dropped within one is freed later.

use std::cell::Cell;

use crate::sync::thread_local;

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    static STREAM_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is within one.
pub(crate) fn is_running() -> bool {
    RUNNING.with(Cell::get)
}

/// Runs code of others that may not use devices.
pub(crate) fn run<T>(call: impl FnOnce() -> T) -> T {
    struct Restore(bool);

    impl Drop for Restore {
        fn drop(&mut self) {
            RUNNING.with(|running| running.set(self.0));
        }
    }

    let _restore = Restore(RUNNING.with(|running| running.replace(true)));
    call()
}

/// Makes this thread one that does the work of a stream. What is dropped on it may not wait for streams, as its own can be
/// among them.
pub(crate) fn enter_stream_thread() {
    STREAM_THREAD.with(|is| is.set(true));
}

/// Whether this thread does the work of a stream.
pub(crate) fn is_stream_thread() -> bool {
    STREAM_THREAD.with(Cell::get)
}
