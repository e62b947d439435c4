//! The end of the process, before which observers get the last records.

#[cfg(all(any(unix, windows), not(miri)))]
pub(super) fn flush_at_exit() {
    use std::ffi::c_int;
    use std::panic::catch_unwind;
    use std::sync::Once;
    use std::time::Duration;

    use crate::runtime::activity::hub::HUB;

    unsafe extern "C" {
        // A function of C, in every library that std links on these systems.
        fn atexit(function: extern "C" fn()) -> c_int;
    }

    extern "C" fn at_exit() {
        // A panic must not leave a function that C calls. There is no place to report it any more.
        let _ = catch_unwind(|| HUB.current().flush(Duration::from_secs(5)));
    }

    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the declaration matches C's. The function stays loaded until it has run: it is linked into
        // the program, or into a library that stays open for as long as the process.
        if unsafe { atexit(at_exit) } != 0 {
            log::warn!("observers may not get the last records: the system refuses a function for the exit");
        }
    });
}

/// Does nothing: the target has no such function, or does not run it.
#[cfg(any(not(any(unix, windows)), miri))]
pub(super) fn flush_at_exit() {}
