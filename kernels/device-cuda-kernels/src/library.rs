//! NVIDIA's libraries, opened at run time: which one is used, and why none is.

use std::ffi::{OsString, c_int};
use std::fmt;
use std::path::{Path, PathBuf};

use device_registry::backend::{LoadFailure, path_variable};
use libloading::Library;

/// Variables that name the folder of a toolkit.
const TOOLKITS: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];

/// A version: major and minor.
pub(crate) type Version = (c_int, c_int);

/// What is looked for.
pub(crate) struct Wanted {
    pub(crate) name: &'static str,
    /// The variable that names the library. No other is opened then.
    pub(crate) variable: &'static str,
    /// Names of the file, the newest first.
    pub(crate) files: &'static [&'static str],
    /// Where it is in Python's registry of packages.
    pub(crate) wheel: &'static str,
}

/// A library with its functions looked up.
pub(crate) trait Found: Sized {
    /// # Errors
    ///
    /// Why the library is not the one that is wanted.
    fn look_up(library: &'static Library) -> Result<Self, String>;

    fn version(&self) -> Version;
}

/// Why there is no library.
pub(crate) enum NotFound {
    /// The one that the variable names cannot be used.
    Named(String),
    /// None that can be used.
    None(String),
}

impl NotFound {
    pub(crate) fn into_failure(self) -> LoadFailure {
        match self {
            Self::Named(reason) | Self::None(reason) => LoadFailure::unavailable(reason),
        }
    }
}

impl Wanted {
    /// The library that the variable names, or the first that fits the driver. It stays open.
    pub(crate) fn find<T: Found>(&self) -> Result<T, NotFound> {
        // Of the newest CUDA that the driver is for.
        let driver = device_cuda::driver_version();
        let named = path_variable(self.variable);
        if let Ok(Some(path)) = &named
            && !path.is_empty()
        {
            return self
                .open(Path::new(path), driver)
                .map_err(|unfit| NotFound::Named(format!("{} names {unfit}", self.variable)));
        }
        let ignored = named
            .err()
            .map_or_else(String::new, |elevated| format!("; {} is ignored: {elevated}", self.variable));
        let mut refused = String::new();
        for path in self.candidates(|name| path_variable(name).ok().flatten()) {
            match self.open(&path, driver) {
                Ok(found) => return Ok(found),
                Err(Unfit::NotThere(_)) => {}
                Err(unfit) => refused += &format!("; found {unfit}"),
            }
        }
        let Self { name, variable, files, wheel } = self;
        Err(NotFound::None(format!(
            "no {name}: none of {} could be used, by the system's search or in a toolkit's folder; install the CUDA \
             toolkit's package of {name}, or `pip install {wheel}` and name its library by {variable}{refused}{ignored}",
            files.join(", ")
        )))
    }

    fn open<T: Found>(&self, path: &Path, driver: Option<Version>) -> Result<T, Unfit> {
        // SAFETY: opening the library runs its initialisers, which are NVIDIA's own and make no demands of
        // the program.
        let library = unsafe { Library::new(path) }.map_err(Unfit::NotThere)?;
        let found =
            T::look_up(Box::leak(Box::new(library))).map_err(|reason| Unfit::Other(path.into(), reason))?;
        // A driver loads what libraries of its own major version make, and of older ones.
        match driver {
            Some(driver) if found.version().0 > driver.0 => {
                Err(Unfit::TooNew { library: self.name, path: path.into(), version: found.version(), driver })
            }
            _ => Ok(found),
        }
    }

    /// By the system's search, then in the folders of toolkits.
    fn candidates(&self, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
        let mut candidates: Vec<PathBuf> = self.files.iter().map(PathBuf::from).collect();
        let named = TOOLKITS.iter().filter_map(|name| variable(name)).map(PathBuf::from);
        for toolkit in named.chain([PathBuf::from("/usr/local/cuda")]).filter(|folder| folder.is_absolute()) {
            for folder in ["lib64", "bin", "bin/x64"] {
                candidates.extend(self.files.iter().map(|name| toolkit.join(folder).join(name)));
            }
        }
        candidates
    }
}

/// A function of the library. The error is its name.
///
/// # Safety
///
/// It has the type `T`.
pub(crate) unsafe fn function<T: Copy>(
    library: &'static Library,
    name: &'static str,
) -> Result<T, &'static str> {
    // SAFETY: the caller vouches for the type.
    unsafe { library.get::<T>(name.as_bytes()) }.map(|symbol| *symbol).map_err(|_| name)
}

/// Why a library is not used.
enum Unfit {
    NotThere(libloading::Error),
    Other(PathBuf, String),
    TooNew { library: &'static str, path: PathBuf, version: Version, driver: Version },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotThere(error) => write!(f, "a library that does not open: {error}"),
            Self::Other(path, reason) => write!(f, "`{}`, and {reason}", path.display()),
            Self::TooNew { library, path, version, driver } => write!(
                f,
                "`{}`, {library} {}.{}, and the driver is for CUDA {}.{}: install {library} {}, or a newer driver",
                path.display(),
                version.0,
                version.1,
                driver.0,
                driver.1,
                driver.0
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolkits_are_looked_in_behind_the_systems_search() {
        let wanted = Wanted { name: "It", variable: "IT", files: &["libit.so.2", "libit.so"], wheel: "it" };
        let found = wanted.candidates(|name| (name == "CUDA_PATH").then(|| "/opt/cuda".into()));
        assert_eq!(found[0], Path::new("libit.so.2"));
        assert!(found.contains(&Path::new("/opt/cuda/lib64").join("libit.so")), "{found:?}");
        let found = wanted.candidates(|_| Some("here".into()));
        assert!(!found.iter().any(|path| path.starts_with("here")), "a relative folder: {found:?}");
    }
}
