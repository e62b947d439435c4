//! Functions that run when the process ends, before what was loaded earlier is torn down.

/// Runs `function` when the process ends. Functions added later run first, including those that a driver's
/// library adds. Where the target has no `atexit`, or does not run it, this does nothing.
pub(crate) fn at_exit(function: extern "C" fn()) {
    #[cfg(all(any(unix, windows), not(miri)))]
    {
        unsafe extern "C" {
            // A C function, in every library that std links on these systems.
            fn atexit(function: extern "C" fn()) -> std::ffi::c_int;
        }

        // SAFETY: the declaration matches C's. The function stays loaded until it has run: it is linked into
        // the program, or into a library that stays open for as long as the process.
        if unsafe { atexit(function) } != 0 {
            log::warn!("the system refuses a function for the end of the process");
        }
    }
    #[cfg(not(all(any(unix, windows), not(miri))))]
    let _ = function;
}
