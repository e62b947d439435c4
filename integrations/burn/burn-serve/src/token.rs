//! The token that clients present, read from a file that only its owner may read.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The longest token, so that a wrong path, such as a device file, is an error and not an endless read.
const MAX_LEN: usize = 4096;

/// Why a file has no usable token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token file `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Users other than the owner may use the file. Only on Unix.
    #[cfg(unix)]
    #[error(
        "other users may read or write the token file `{path}` (mode {mode:03o}); run `chmod 600 '{path}'`, and replace \
         the token if others had time to read it",
        path = .path.display()
    )]
    Shared {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file belongs to another user, who knows the token and can change it. Only on Unix.
    #[cfg(unix)]
    #[error(
        "the token file `{path}` belongs to user {owner}, and this process runs as user {user}; make a token file of its \
         own",
        path = .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// The file has no token in it.
    #[error("the token file `{}` is empty; write a long random token into it, such as the output of `openssl rand -hex 32`", .0.display())]
    Empty(PathBuf),
    /// The file is too long for a token.
    #[error("the token file `{}` has more than {MAX_LEN} bytes; expected one line with a token", .0.display())]
    TooLong(PathBuf),
}

/// The token in a file, without the newline at its end.
///
/// # Errors
///
/// [`TokenError`] if the file cannot be read, other users may read it or own it, or it is empty or too long.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TokenError> {
    let fail = |source| TokenError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(fail)?;
    #[cfg(unix)]
    refuse_shared(&file, path)?;
    let mut token = Vec::new();
    file.take(MAX_LEN as u64 + 2).read_to_end(&mut token).map_err(fail)?;
    if token.ends_with(b"\n") {
        token.pop();
        if token.ends_with(b"\r") {
            token.pop();
        }
    }
    if token.trim_ascii().is_empty() {
        return Err(TokenError::Empty(path.to_owned()));
    }
    if token.len() > MAX_LEN {
        return Err(TokenError::TooLong(path.to_owned()));
    }
    Ok(token)
}

/// Checks the open file, and not the path, which another user may replace between the check and the read.
#[cfg(unix)]
fn refuse_shared(file: &File, path: &Path) -> Result<(), TokenError> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    let metadata = file.metadata().map_err(|source| TokenError::Read { path: path.to_owned(), source })?;
    let owner = metadata.uid();
    let user = rustix::process::geteuid().as_raw();
    // Root reads every file anyway.
    if owner != user && owner != 0 {
        return Err(TokenError::Foreign { path: path.to_owned(), owner, user });
    }
    let mode = metadata.permissions().mode() & 0o777;
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(TokenError::Shared { path: path.to_owned(), mode }),
    }
}
