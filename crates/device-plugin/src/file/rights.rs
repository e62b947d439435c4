//! Whose files this process trusts, which has perhaps more rights than the user that started it.

use device_registry::backend::is_elevated;

/// What the process may do beyond its user. Such a user chooses the environment and must not name files
/// through it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    elevated: bool,
    /// The user whose files are trusted, in addition to root's.
    #[cfg(unix)]
    user: Option<u32>,
}

#[cfg(unix)]
impl Rights {
    /// The rights at this moment: a server may have given up root's since it started.
    pub(crate) fn of_process() -> Self {
        // SAFETY: `getuid` has no preconditions and cannot fail.
        let real = unsafe { libc::getuid() };
        // SAFETY: `geteuid` has no preconditions and cannot fail.
        let effective = unsafe { libc::geteuid() };
        Self::new(is_elevated(), real, effective)
    }

    /// `elevated` is what the system says of the process.
    ///
    /// In a process with more rights than its user, that user is the one to be wary of. With a set-group-ID
    /// program or one with capabilities, the effective user is the same one. A server that has taken another
    /// user's identity for a while, and can take its own again, trusts root only: code of that user would be
    /// able to do so too.
    pub(crate) fn new(elevated: bool, real: u32, effective: u32) -> Self {
        Self { elevated, user: (elevated == (real != effective)).then_some(effective) }
    }

    pub(crate) fn user(self) -> Option<u32> {
        self.user
    }
}

#[cfg(not(unix))]
impl Rights {
    pub(crate) fn of_process() -> Self {
        Self { elevated: is_elevated() }
    }

    #[cfg(test)]
    pub(crate) fn new(elevated: bool) -> Self {
        Self { elevated }
    }
}

impl Rights {
    pub(crate) fn is_elevated(self) -> bool {
        self.elevated
    }
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
