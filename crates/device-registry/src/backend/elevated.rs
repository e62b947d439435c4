//! Whether this process has more rights than the user that started it; such a user must not name files to it.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fmt;

/// The reason for which a variable of the environment has no effect: this process is [elevated](is_elevated).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElevatedProcess;

impl fmt::Display for ElevatedProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this process has more rights than its user, whose environment must not name files")
    }
}

impl Error for ElevatedProcess {}

/// The value of a variable of the environment that names files, folders or libraries. `None` if it is not
/// set.
///
/// Backends and observers read such variables only with this function. An elevated process ignores them, as
/// the system ignores `LD_PRELOAD` there: otherwise its user could run any code, or write any file, with its
/// rights.
///
/// ```
/// # use device_registry::backend::path_variable;
/// match path_variable("EXAMPLE_LIBRARY") {
///     Ok(Some(library)) => println!("opening {}", library.display()),
///     Ok(None) => println!("opening the system's library"),
///     Err(elevated) => println!("EXAMPLE_LIBRARY is ignored: {elevated}"),
/// }
/// ```
///
/// # Errors
///
/// [`ElevatedProcess`] if the variable is set and this process is elevated. A backend then behaves as if it
/// were not set, and says so in the log and in errors.
pub fn path_variable(name: &str) -> Result<Option<OsString>, ElevatedProcess> {
    let value = env::var_os(name);
    if value.is_some() && is_elevated() { Err(ElevatedProcess) } else { Ok(value) }
}

/// Whether this process has more rights than the user that started it: a set-user-ID or set-group-ID program,
/// or one with file capabilities, on Linux, Android, macOS and BSD; a process with the rights of an
/// administrator on Windows.
#[must_use]
pub fn is_elevated() -> bool {
    system::is_elevated()
}

/// The kernel says so to the C library, which ignores variables such as `LD_PRELOAD` for the same reason.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::ffi::c_ulong;

    const AT_SECURE: c_ulong = 23;

    unsafe extern "C" {
        safe fn getauxval(kind: c_ulong) -> c_ulong;
    }

    pub(super) fn is_elevated() -> bool {
        getauxval(AT_SECURE) != 0
    }
}

#[cfg(any(
    target_vendor = "apple",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd",
))]
mod system {
    unsafe extern "C" {
        safe fn issetugid() -> std::ffi::c_int;
    }

    pub(super) fn is_elevated() -> bool {
        issetugid() != 0
    }
}

#[cfg(all(
    unix,
    not(any(
        target_os = "linux",
        target_os = "android",
        target_vendor = "apple",
        target_os = "dragonfly",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd",
    ))
))]
mod system {
    unsafe extern "C" {
        safe fn getuid() -> u32;
        safe fn geteuid() -> u32;
        safe fn getgid() -> u32;
        safe fn getegid() -> u32;
    }

    pub(super) fn is_elevated() -> bool {
        getuid() != geteuid() || getgid() != getegid()
    }
}

/// Whether an administrator's token has its rights: a user's own variables are in the environment of such a
/// process, and every process of the user can set them.
#[cfg(windows)]
mod system {
    use std::ffi::c_void;
    use std::ptr::null_mut;

    const TOKEN_QUERY: u32 = 8;
    const TOKEN_ELEVATION: u32 = 20;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        safe fn GetCurrentProcess() -> *mut c_void;
        fn CloseHandle(handle: *mut c_void) -> i32;
    }
    #[link(name = "advapi32")]
    unsafe extern "system" {
        fn OpenProcessToken(process: *mut c_void, access: u32, token: *mut *mut c_void) -> i32;
        fn GetTokenInformation(
            token: *mut c_void,
            class: u32,
            value: *mut c_void,
            size: u32,
            needed: *mut u32,
        ) -> i32;
    }

    pub(super) fn is_elevated() -> bool {
        let mut token = null_mut();
        // SAFETY: the process is this one's pseudo-handle, and `token` a variable that the call may write.
        if unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) } == 0 {
            // Unknown rights are treated as the larger ones.
            return true;
        }
        let mut elevated = 0_u32;
        let mut size = 0;
        // SAFETY: the token is open, and `TOKEN_ELEVATION` is one `u32`, which `elevated` has room for.
        let known = unsafe {
            GetTokenInformation(token, TOKEN_ELEVATION, (&raw mut elevated).cast(), 4, &raw mut size) != 0
        };
        // SAFETY: the token was opened above and is not used again.
        unsafe { CloseHandle(token) };
        !known || elevated != 0
    }
}

#[cfg(not(any(unix, windows)))]
mod system {
    pub(super) fn is_elevated() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn an_ordinary_process_obeys_its_variables() {
        assert!(!is_elevated());
        assert_eq!(path_variable("PATH"), Ok(env::var_os("PATH")));
        assert_eq!(path_variable("DEVICE_REGISTRY_NO_SUCH_VARIABLE"), Ok(None));
    }
}
