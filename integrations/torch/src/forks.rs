//! Notices a fork, so that a child gets errors.

use std::sync::Once;

use crate::devices;

/// Lets a child of a fork know what it is. To be called before a device is used.
pub(crate) fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the function only touches an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    devices::set_forked();
}
