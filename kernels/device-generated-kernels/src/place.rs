//! Where compiled programs are kept: the user's folder for caches, or the one that a variable names.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use device_registry::backend::{ElevatedProcess, is_elevated};
use entry_points::message::parse_switch;

use crate::disk::Disk;

/// The variable that turns it off or names the folder.
const VARIABLE: &str = "DEVICE_PROGRAM_CACHE";

/// How many bytes are kept: about two thousand PoCL programs.
const LIMIT: u64 = 128 << 20;

impl Disk {
    /// The folder with this name in `device-registry` of the user's caches, or the one that the variable
    /// `DEVICE_PROGRAM_CACHE` names. `None` if nothing is kept: the variable says so, there is no such
    /// folder, or the [process is elevated](is_elevated).
    ///
    /// # Errors
    ///
    /// A message for the user if the variable has an invalid value.
    pub fn of_user(name: &str) -> Result<Option<Self>, String> {
        // A binary is code: the user of such a process must name none.
        if is_elevated() {
            log::debug!("compiled programs are not kept: {ElevatedProcess}");
            return Ok(None);
        }
        let folder = folder(env::var_os(VARIABLE).as_deref(), || default_folder(name))?;
        if folder.is_none() {
            log::debug!("compiled programs are not kept");
        }
        Ok(folder.map(|folder| Self::new(folder, LIMIT)))
    }
}

/// The folder that a value of the variable chooses.
fn folder(
    value: Option<&OsStr>,
    default: impl FnOnce() -> Option<PathBuf>,
) -> Result<Option<PathBuf>, String> {
    let Some(value) = value.filter(|value| !value.to_string_lossy().trim().is_empty()) else {
        return Ok(default());
    };
    if Path::new(value).is_absolute() {
        return Ok(Some(value.into()));
    }
    match parse_switch(&value.to_string_lossy()) {
        Some(true) => Ok(default()),
        Some(false) => Ok(None),
        None => Err(format!(
            "invalid {VARIABLE}: expected 0, 1 or the absolute path of a folder, found {value:?}"
        )),
    }
}

fn default_folder(name: &str) -> Option<PathBuf> {
    let caches = caches(env::home_dir(), |name| env::var_os(name))?;
    Some(caches.join("device-registry").join(name))
}

/// The folder in which programs of the user keep what they can make again.
fn caches(home: Option<PathBuf>, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = home.filter(|path| path.is_absolute());
    if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else if cfg!(target_vendor = "apple") {
        Some(home?.join("Library/Caches"))
    } else {
        folder("XDG_CACHE_HOME").or_else(|| Some(home?.join(".cache")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_turns_it_off_or_names_an_absolute_folder() {
        let absolute = if cfg!(windows) { r"C:\kept" } else { "/kept" };
        let of = |value: &str| folder(Some(OsStr::new(value)), || Some("default".into()));
        assert_eq!(folder(None, || Some("default".into())), Ok(Some("default".into())));
        for value in ["", " ", "1", "on"] {
            assert_eq!(of(value), Ok(Some("default".into())), "{value:?}");
        }
        for value in ["0", "off", "No "] {
            assert_eq!(of(value), Ok(None), "{value:?}");
        }
        assert_eq!(of(absolute), Ok(Some(absolute.into())));
        for value in ["kept", "./kept", "../0"] {
            let message = of(value).unwrap_err();
            assert!(message.starts_with("invalid DEVICE_PROGRAM_CACHE: expected 0, 1 or"), "{message}");
            assert!(message.ends_with(&format!("found {value:?}")), "{message}");
        }
    }

    #[cfg(all(unix, not(target_vendor = "apple")))]
    #[test]
    fn the_folder_is_that_of_the_desktop_standard() {
        let of = |home: Option<&str>, cache: Option<&str>| {
            let variable =
                |name: &str| (name == "XDG_CACHE_HOME").then(|| cache.map(OsString::from)).flatten();
            caches(home.map(PathBuf::from), variable)
        };
        assert_eq!(of(Some("/home/me"), None), Some("/home/me/.cache".into()));
        assert_eq!(of(Some("/home/me"), Some("/caches")), Some("/caches".into()));
        // The standard says that a relative path is invalid and ignored.
        assert_eq!(of(Some("/home/me"), Some("caches")), Some("/home/me/.cache".into()));
        assert_eq!(of(None, Some("/caches")), Some("/caches".into()));
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some(""), None), None);
    }
}
