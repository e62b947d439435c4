//! Which threads may not use devices at the moment, because code of others runs on them.
//!
//! That is so within a host call, a kernel, native code, a logger and a waker. The rule is CUDA's, whose host functions may call
//! nothing of it, and it is kept for every device: a host call that waits for a stream can be the one that the stream waits for.
//! Memory that is dropped there is freed later.

use std::cell::Cell;

use crate::sync::thread_local;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
    static STREAM_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread may not use devices now.
#[inline]
pub(crate) fn is_forbidden() -> bool {
    FORBIDDEN.with(Cell::get)
}

/// Runs code of others that may not use devices.
pub(crate) fn forbid<T>(call: impl FnOnce() -> T) -> T {
    struct Restore(bool);

    impl Drop for Restore {
        fn drop(&mut self) {
            FORBIDDEN.with(|forbidden| forbidden.set(self.0));
        }
    }

    let _restore = Restore(FORBIDDEN.with(|forbidden| forbidden.replace(true)));
    call()
}

/// Makes this thread one that does the work of a stream. What is dropped on it may not wait for streams, as its own can be
/// among them.
pub(crate) fn enter_stream_thread() {
    STREAM_THREAD.with(|is| is.set(true));
}

/// Whether this thread does the work of a stream.
#[inline]
pub(crate) fn is_stream_thread() -> bool {
    STREAM_THREAD.with(Cell::get)
}
