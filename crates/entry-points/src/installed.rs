//! Entry points in files that the program finds while it runs.

use std::fmt;
use std::panic::Location;
use std::path::{Path, PathBuf};

use crate::entry_point::{EntryPoint, LoadFile};
use crate::error::RegisterError;
use crate::failure::LoadFailure;
use crate::name::is_name;
use crate::options::{OptionSpec, Options};

/// An entry point in a file, such as a shared library, for [`Group::install`](crate::Group::install).
///
/// This crate opens no files. The program passes a function that opens the file, and decides what is in it.
/// The function runs at the first use of the name, like the `load` of a linked entry point.
///
/// ```
/// use entry_points::{EntryPoint, Group, Installed, LoadFailure};
///
/// static GREETINGS: Group<String> = Group::new("example.greetings");
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("greetings-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let file = folder.join("polite.txt");
/// std::fs::write(&file, "good evening")?;
/// let opened = file.clone();
/// let load = move |_: &_| match std::fs::read_to_string(&opened) {
///     Ok(text) => Ok(Box::new(text)),
///     Err(error) => Err(LoadFailure::new(format!("cannot read {}", opened.display())).with_source(error)),
/// };
/// GREETINGS.install(Installed::new("polite", &file, load).package("greetings", "1.2.0"))?;
/// assert_eq!(GREETINGS.load("polite")?, "good evening");
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
pub struct Installed<P: ?Sized + 'static> {
    name: String,
    file: PathBuf,
    load: Box<LoadFile<P>>,
    package: Option<(String, String)>,
    options: Vec<(String, String)>,
    declared_at: &'static Location<'static>,
}

impl<P: ?Sized + 'static> Installed<P> {
    /// An entry point called `name` in `file`, which `load` opens. `load` runs on the thread that first uses
    /// the name, at most once at a time, with no lock held.
    #[track_caller]
    pub fn new(
        name: impl Into<String>,
        file: impl Into<PathBuf>,
        load: impl Fn(&Options) -> Result<Box<P>, LoadFailure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            file: file.into(),
            load: Box::new(load),
            package: None,
            options: Vec::new(),
            declared_at: Location::caller(),
        }
    }

    /// Sets the package that the file comes from.
    #[must_use]
    pub fn package(self, name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { package: Some((name.into(), version.into())), ..self }
    }

    /// Adds an option that it accepts: see [`OptionSpec`].
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, description: impl Into<String>) -> Self {
        self.options.push((name.into(), description.into()));
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The entry point, whose parts live for the rest of the program, as all entry points do.
    pub(crate) fn into_entry_point(self, group: &'static str) -> Result<EntryPoint<P>, RegisterError> {
        let is_twice = |at: usize| self.options[..at].iter().any(|(name, _)| *name == self.options[at].0);
        let mut options = self.options.iter().enumerate();
        let wrong = if is_name(self.name.as_bytes()) {
            options.find(|(at, (name, _))| !is_name(name.as_bytes()) || is_twice(*at))
        } else {
            None
        };
        if wrong.is_some() || !is_name(self.name.as_bytes()) {
            let option = wrong.map(|(_, (name, _))| name.clone());
            return Err(RegisterError::InvalidName { name: self.name, option, group, file: self.file });
        }
        let options = self.options.into_iter();
        let options: Vec<OptionSpec> =
            options.map(|(name, description)| OptionSpec::new(name.leak(), description.leak())).collect();
        let point = EntryPoint::in_file(
            self.name.leak(),
            Box::leak(self.load),
            options.leak(),
            Box::leak(self.file.into_boxed_path()),
            self.declared_at,
        );
        Ok(match self.package {
            Some((name, version)) => point.in_package(name.leak(), version.leak()),
            None => point,
        })
    }
}

impl<P: ?Sized> fmt::Debug for Installed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installed")
            .field("name", &self.name)
            .field("file", &self.file)
            .field("package", &self.package)
            .finish_non_exhaustive()
    }
}
