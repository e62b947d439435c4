//! Whether other users could have changed a file.

use std::collections::HashSet;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use entry_points::message::shown_path;

use crate::file::rights::Rights;

/// Which files are trusted: those that only root and the user of this process can change. The folders above
/// count too, as a file can be replaced in them.
///
/// Windows has no such check: its access lists do not reduce to an owner and a mode.
pub(crate) struct Trust {
    any_owner: bool,
    #[cfg_attr(not(unix), allow(dead_code))]
    rights: Rights,
    /// The folders that were found to be safe, with all above them.
    safe: HashSet<PathBuf>,
}

impl Trust {
    pub(crate) fn new(any_owner: bool, rights: Rights) -> Self {
        Self { any_owner, rights, safe: HashSet::new() }
    }

    /// Checks a folder and those above it. `folder` is canonical.
    pub(crate) fn check_folder(&mut self, folder: &Path) -> Result<(), TrustError> {
        if self.any_owner || cfg!(not(unix)) {
            return Ok(());
        }
        // From the inside out: once a folder is known to be safe, those above it are too.
        let unknown: Vec<&Path> =
            folder.ancestors().take_while(|above| !self.safe.contains(*above)).collect();
        let metadata_of =
            |path: &Path| path.metadata().map_err(|error| TrustError::Unknown { file: path.into(), error });
        for above in &unknown {
            self.check(above, &metadata_of(above)?, true)?;
        }
        self.safe.extend(unknown.into_iter().map(Path::to_owned));
        // Other users may put files into a sticky folder, such as links to files of this one.
        self.check(folder, &metadata_of(folder)?, false)
    }

    /// Checks a file and the folders above it. `file` is canonical, and `metadata` is the file's own.
    pub(crate) fn check_file(&mut self, file: &Path, metadata: &Metadata) -> Result<(), TrustError> {
        if !self.any_owner {
            self.check(file, metadata, false)?;
        }
        file.parent().map_or(Ok(()), |folder| self.check_folder(folder))
    }

    #[cfg(unix)]
    fn check(&self, path: &Path, metadata: &Metadata, may_be_sticky: bool) -> Result<(), TrustError> {
        use std::os::unix::fs::MetadataExt;
        let user = self.rights.user();
        if metadata.uid() != 0 && Some(metadata.uid()) != user {
            return Err(TrustError::Owner { file: path.into(), owner: metadata.uid(), user });
        }
        let mode = metadata.mode() & 0o7777;
        // In a sticky folder, such as the system's for temporary files, users cannot replace each other's
        // files.
        let is_sticky_folder = may_be_sticky && metadata.is_dir() && mode & 0o1000 != 0;
        let by = match mode {
            _ if is_sticky_folder => return Ok(()),
            mode if mode & 0o002 != 0 => "others",
            mode if mode & 0o020 != 0 => "its group",
            _ => return Ok(()),
        };
        Err(TrustError::Writable { file: path.into(), mode, by })
    }

    #[cfg(not(unix))]
    fn check(&self, _: &Path, _: &Metadata, _: bool) -> Result<(), TrustError> {
        Ok(())
    }
}

/// Why a file is not trusted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    #[error("`{}` belongs to the user {owner}; expected root{}; {OWNER}", shown_path(file), or_user(*user))]
    #[cfg_attr(not(unix), allow(dead_code))]
    Owner { file: PathBuf, owner: u32, user: Option<u32> },
    #[error(
        "`{path}` can be written to by {by} (mode {mode:o}); expected a mode that lets only its owner write: \
         `chmod go-w {path}`",
        path = shown_path(file)
    )]
    #[cfg_attr(not(unix), allow(dead_code))]
    Writable { file: PathBuf, mode: u32, by: &'static str },
    #[error("cannot find out who can write to `{}`: {error}", shown_path(file))]
    Unknown { file: PathBuf, error: io::Error },
}

const OWNER: &str = "change its owner, or let the program call `Plugins::trust_any_owner`";

fn or_user(user: Option<u32>) -> String {
    match user {
        // The user of this process may be root itself.
        Some(0) => String::new(),
        Some(user) => format!(" or the user of this process, {user}"),
        None => " alone, as this process has more rights than its user".to_owned(),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    /// A folder that only this user can change, with a file in it. Its path is canonical.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().canonicalize().unwrap().join("lib.so");
        fs::write(&file, "").unwrap();
        set_mode(&file, 0o644);
        (folder, file)
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn check_as(rights: Rights, file: &Path) -> Result<(), String> {
        let check = Trust::new(false, rights).check_file(file, &file.metadata().unwrap());
        check.map_err(|error| error.to_string())
    }

    fn check(file: &Path) -> Result<(), String> {
        check_as(Rights::of_process(), file)
    }

    fn is_root() -> bool {
        Rights::of_process().user() == Some(0)
    }

    #[test]
    fn a_file_that_others_can_write_to_is_refused() {
        let (_folder, file) = folder();
        check(&file).unwrap();
        for (mode, by) in [(0o666, "others"), (0o664, "its group"), (0o646, "others"), (0o1666, "others")] {
            set_mode(&file, mode);
            let path = file.display();
            let message = format!(
                "`{path}` can be written to by {by} (mode {mode:o}); expected a mode that lets only its owner write: \
                 `chmod go-w {path}`"
            );
            assert_eq!(check(&file), Err(message));
        }
    }

    #[test]
    fn a_folder_above_that_others_can_write_to_is_refused_unless_it_is_sticky() {
        let (folder, file) = folder();
        let inner = file.parent().unwrap().join("inner");
        fs::create_dir(&inner).unwrap();
        let moved = inner.join("lib.so");
        fs::rename(&file, &moved).unwrap();
        set_mode(folder.path(), 0o777);
        let error = check(&moved).unwrap_err();
        assert!(error.starts_with(&format!("`{}` can be", folder.path().display())), "{error}");
        assert!(error.contains("by others (mode 777)"), "{error}");
        set_mode(folder.path(), 0o1777);
        check(&moved).unwrap();
    }

    #[test]
    fn a_sticky_folder_with_the_file_in_it_is_refused() {
        let (folder, file) = folder();
        set_mode(folder.path(), 0o1777);
        let error = check(&file).unwrap_err();
        assert!(error.contains("by others (mode 1777)"), "{error}");
        // Also where it was found to be safe as a folder above.
        let inner = file.parent().unwrap().join("inner");
        fs::create_dir(&inner).unwrap();
        let mut trust = Trust::new(false, Rights::of_process());
        trust.check_folder(&inner).unwrap();
        assert!(trust.check_folder(file.parent().unwrap()).is_err());
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        let (_folder, file) = folder();
        if !is_root() {
            eprintln!("skipped: only root can give a file to another user");
            return;
        }
        chown(&file, Some(1234), None).unwrap();
        let path = file.display();
        let message = format!(
            "`{path}` belongs to the user 1234; expected root; change its owner, or let the program call \
             `Plugins::trust_any_owner`"
        );
        assert_eq!(check(&file), Err(message));
        check_as(Rights::new(false, 1234, 1234), &file).unwrap();
        let error = check_as(Rights::new(false, 1000, 1000), &file).unwrap_err();
        assert!(error.contains("expected root or the user of this process, 1000;"), "{error}");
        let error = check_as(Rights::new(true, 1234, 1234), &file).unwrap_err();
        assert!(error.contains("expected root alone, as this process has more rights"), "{error}");
        Trust::new(true, Rights::of_process()).check_file(&file, &file.metadata().unwrap()).unwrap();
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let (folder, file) = folder();
        if !is_root() {
            eprintln!("skipped: only root can give a folder to another user");
            return;
        }
        chown(folder.path(), Some(1234), None).unwrap();
        let error = check(&file).unwrap_err();
        assert!(error.starts_with(&format!("`{}` belongs to", folder.path().display())), "{error}");
    }
}
