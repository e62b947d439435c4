//! What the command does, as values. Its arguments are parsed in the crate `devices`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::file::manifest::is_name;

/// The first argument of the process that opens a library. It is not for users.
pub const CHILD: &str = "--open-library";

/// How far a library is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// It is opened, and its entries are read.
    Open,
    /// Its backends are loaded too, and their devices counted.
    Load,
}

impl How {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Load => "load",
        }
    }
}

/// `devices plugin check`
#[derive(Debug)]
pub struct Check {
    /// Libraries, manifests, and folders with manifests.
    pub files: Vec<PathBuf>,
    /// Which of them are opened.
    pub opening: Opening,
}

/// `devices plugin manifest`
#[derive(Debug)]
pub struct Manifest {
    /// The library.
    pub file: PathBuf,
    /// What device strings call the backend, if the library calls it otherwise.
    pub name: Option<String>,
    /// What the manifest is for, if not a backend.
    pub group: Option<String>,
    /// The entry of a library that has several.
    pub entry: Option<String>,
    /// Whether the digest of the library is in the manifest.
    pub sha256: bool,
    /// Whether the library is opened.
    pub opening: Opening,
}

/// Which libraries are opened, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Also those that other users can change.
    pub any_owner: bool,
    /// How long a library may take.
    pub limit: Duration,
}

/// A name for device strings.
///
/// # Errors
///
/// What is expected of one.
pub fn name(text: &str) -> Result<String, String> {
    let expected = "expected 1 to 32 bytes of a-z, 0-9 and _, without a digit at the start";
    is_name(text).then(|| text.to_owned()).ok_or_else(|| expected.to_owned())
}

/// A time limit in seconds.
///
/// # Errors
///
/// What is expected of one.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0);
    let limit = seconds.and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
    limit.ok_or_else(|| "expected seconds, such as 30".to_owned())
}

/// The library that a process opens, by its arguments behind [`CHILD`].
pub(super) fn child(mut arguments: impl Iterator<Item = OsString>) -> Option<(How, PathBuf)> {
    let how = match arguments.next()? {
        how if how == How::Open.name() => How::Open,
        _ => How::Load,
    };
    Some((how, arguments.next()?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_limit_are_checked() {
        assert_eq!(name("acme_2").as_deref(), Ok("acme_2"));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(["", "A", "2a", "a-b"].iter().all(|text| name(text).is_err()));
        assert!(["0", "-1", "1e99", "NaN", "x"].iter().all(|text| seconds(text).is_err()));
    }
}
