//! Which threads may not use devices at the moment, because they run foreign code.
//!
//! Foreign code runs in a host call, a kernel, native code, a logger or a waker. CUDA has this rule
//! for its host functions, and the core applies it to every device: a host call that waits for a stream can
//! deadlock with it. Memory that such code drops is freed later.

use std::cell::Cell;

use crate::sync::thread_local;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
    static STREAM_THREAD: Cell<bool> = const { Cell::new(false) };
    static CALLS_INTO_BACKENDS: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread may not use devices now.
#[inline]
pub(crate) fn is_forbidden() -> bool {
    FORBIDDEN.with(Cell::get)
}

/// Whether this thread may not drop values of a driver now: another one does so later.
#[inline]
pub(crate) fn defers_drops() -> bool {
    is_forbidden() || is_stream_thread()
}

/// Runs foreign code, which may not use devices.
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

/// Until it is dropped, this thread runs a backend's code, which may hold its own locks and use devices of
/// other backends.
pub(crate) struct InBackend(());

impl InBackend {
    #[inline]
    pub(crate) fn enter() -> Self {
        CALLS_INTO_BACKENDS.with(|calls| calls.set(calls.get().wrapping_add(1)));
        Self(())
    }
}

impl Drop for InBackend {
    #[inline]
    fn drop(&mut self) {
        CALLS_INTO_BACKENDS.with(|calls| calls.set(calls.get().wrapping_sub(1)));
    }
}

/// Whether this thread runs code of a backend.
#[inline]
pub(crate) fn is_in_backend() -> bool {
    CALLS_INTO_BACKENDS.with(Cell::get) > 0
}

/// Marks this thread as the thread of a stream. A value that is dropped on it must not wait for a stream,
/// which could be its own.
pub(crate) fn enter_stream_thread() {
    STREAM_THREAD.with(|is| is.set(true));
}

/// Does work of a stream on this thread, which until then is like the thread of a stream.
pub(crate) fn as_stream_thread<T>(work: impl FnOnce() -> T) -> T {
    struct Restore(bool);

    impl Drop for Restore {
        fn drop(&mut self) {
            STREAM_THREAD.with(|is| is.set(self.0));
        }
    }

    let _restore = Restore(STREAM_THREAD.with(|is| is.replace(true)));
    work()
}

/// Whether this thread is the thread of a stream.
#[inline]
pub(crate) fn is_stream_thread() -> bool {
    STREAM_THREAD.with(Cell::get)
}
