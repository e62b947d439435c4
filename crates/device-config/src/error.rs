//! Why a file is not used.

use std::fmt;
use std::io;
use std::path::PathBuf;

use entry_points::message::shown_path;

use crate::source::Mistake;

/// Why [`Config::load`](crate::Config::load) failed. `Debug` prints the message, for programs that return the
/// error from `main`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The variable names a file by a path that depends on the current directory.
    #[error("DEVICE_CONFIG names the relative path `{}`; expected an absolute one", shown_path(.0))]
    Relative(PathBuf),
    /// The file cannot be read. One that is only looked for beside the program may be missing.
    #[error("`{}`{} cannot be read: {source}", shown_path(file), if *.by_variable { ", which DEVICE_CONFIG names," } else { "" })]
    #[non_exhaustive]
    Read {
        /// The file.
        file: PathBuf,
        /// Whether the variable `DEVICE_CONFIG` names it.
        by_variable: bool,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is wrong.
    #[error("{}:{line}:{column}: {message}", shown_path(file))]
    #[non_exhaustive]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What is wrong, and what is expected.
        message: String,
    },
    /// The file sets something that the program has used or set before.
    #[error("{}:{line}:{column}: {reason}", shown_path(file))]
    #[non_exhaustive]
    TooLate {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What the program has done, and what to do.
        reason: String,
    },
    /// The file names folders of plugins, and other users could have written it.
    #[error("{}:{line}: it names folders of plugins, and is not trusted: {reason}", shown_path(file))]
    #[non_exhaustive]
    Untrusted {
        /// The file.
        file: PathBuf,
        /// The line of the folders, from 1.
        line: usize,
        /// Who could have written it, and what to do.
        reason: String,
    },
    /// The program names a folder of plugins in a way that cannot be right.
    #[cfg(feature = "plugins")]
    #[error(transparent)]
    Plugins(#[from] device_plugin::InstallError),
}

impl Error {
    pub(crate) fn invalid(file: impl Into<PathBuf>, mistake: Mistake) -> Self {
        let Mistake { at, message } = mistake;
        Self::Invalid { file: file.into(), line: at.line, column: at.column, message }
    }

    pub(crate) fn too_late(file: impl Into<PathBuf>, mistake: Mistake) -> Self {
        let Mistake { at, message: reason } = mistake;
        Self::TooLate { file: file.into(), line: at.line, column: at.column, reason }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
