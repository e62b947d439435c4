//! Whether this process has more rights than the user that started it, and whose files it trusts.

/// What the process may do beyond its user. Such a user chooses the environment and must not name code through it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rights {
    elevated: bool,
    /// The user, besides root, whose files are trusted.
    #[cfg(unix)]
    user: Option<u32>,
}

#[cfg(unix)]
impl Rights {
    /// The rights at this moment: a server may have given up those of root since it started.
    pub(super) fn of_process() -> Self {
        // SAFETY: `getuid` has no preconditions and cannot fail.
        let real = unsafe { libc::getuid() };
        // SAFETY: `geteuid` has no preconditions and cannot fail.
        let effective = unsafe { libc::geteuid() };
        Self::new(is_elevated(), real, effective)
    }

    /// `elevated` is what the system says of the process.
    ///
    /// In a process with more rights than its user, that user is the one to be wary of. With a set-group-ID program or one
    /// with capabilities, the effective user is the same one. A server that has taken another user's identity for a while, and can
    /// take its own again, trusts root only: code of that user would be able to do so too.
    pub(super) fn new(elevated: bool, real: u32, effective: u32) -> Self {
        Self { elevated, user: (elevated == (real != effective)).then_some(effective) }
    }

    pub(super) fn user(self) -> Option<u32> {
        self.user
    }
}

#[cfg(not(unix))]
impl Rights {
    pub(super) fn of_process() -> Self {
        Self { elevated: is_elevated() }
    }

    #[cfg(test)]
    pub(super) fn new(elevated: bool) -> Self {
        Self { elevated }
    }
}

impl Rights {
    pub(super) fn is_elevated(self) -> bool {
        self.elevated
    }
}

/// Set-user-ID, set-group-ID and file capabilities: the kernel says so to the C library, which ignores variables such as
/// `LD_PRELOAD` for the same reason.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_elevated() -> bool {
    // SAFETY: `getauxval` reads a vector that the kernel has made for this process; any number is a valid argument.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(any(
    target_vendor = "apple",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd",
))]
fn is_elevated() -> bool {
    // SAFETY: `issetugid` has no preconditions and cannot fail.
    unsafe { libc::issetugid() != 0 }
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
fn is_elevated() -> bool {
    // SAFETY: the four functions have no preconditions and cannot fail.
    unsafe { libc::getuid() != libc::geteuid() || libc::getgid() != libc::getegid() }
}

/// Whether an administrator's token has its rights: a user's own variables are in the environment of such a process, and
/// every process of the user can set them.
#[cfg(windows)]
fn is_elevated() -> bool {
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

    let mut token = null_mut();
    // SAFETY: the process is this one's pseudo-handle, and `token` a variable that the call may write.
    if unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) } == 0 {
        // Unknown rights are treated as the larger ones.
        return true;
    }
    let (mut elevated, mut size) = (0_u32, 0);
    // SAFETY: the token is open, and `TOKEN_ELEVATION` is one `u32`, which `elevated` has room for.
    let known = unsafe {
        GetTokenInformation(token, TOKEN_ELEVATION, (&raw mut elevated).cast(), 4, &raw mut size) != 0
    };
    // SAFETY: the token was opened above and is not used again.
    unsafe { CloseHandle(token) };
    !known || elevated != 0
}

#[cfg(not(any(unix, windows)))]
fn is_elevated() -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_process_trusts_its_own_user() {
        let rights = Rights::of_process();
        assert!(!rights.is_elevated() && rights.user().is_some());
    }

    #[test]
    fn an_elevated_process_trusts_its_effective_user_unless_that_is_the_real_one() {
        assert_eq!(Rights::new(true, 1000, 50).user(), Some(50));
        assert_eq!(Rights::new(true, 1000, 1000).user(), None);
        assert_eq!(Rights::new(false, 1000, 1000).user(), Some(1000));
    }

    #[test]
    fn a_server_in_the_name_of_another_user_trusts_root_only() {
        assert_eq!(Rights::new(false, 0, 1000).user(), None);
    }
}
