//! Finding the file, and loading it.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use device_registry::backend::{is_elevated, path_variable};
use entry_points::by_name;
use entry_points::message::shown_path;

use crate::document::{self, Document};
use crate::error::Error;
use crate::report::ConfigReport;
use crate::{apply, source};

/// Where a program's configuration file may be.
///
/// Nothing is read before [`load`](Self::load). The file in the variable `DEVICE_CONFIG` is used, or else
/// [the one beside the program](Self::beside_program) if the program says so. No other folder is searched,
/// neither the current one nor the user's or the system's.
///
/// ```
/// use device_config::Config;
///
/// fn main() -> Result<(), device_config::Error> {
///     let report = Config::new().beside_program().load()?;
///     println!("{report}");
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "`load` reads the file"]
pub struct Config {
    file: Option<PathBuf>,
    beside_program: bool,
    #[cfg(feature = "plugins")]
    plugins: Option<device_plugin::Plugins>,
}

/// A file that was found.
struct Found {
    /// Canonical, so that a check of the path is one of the file that was read.
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Config {
    /// The variable that names the file.
    pub const VARIABLE: &str = "DEVICE_CONFIG";

    /// The name of the file beside the program.
    pub const FILE: &str = "device.toml";

    /// The file that the variable names, and no other.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also looks for `device.toml` in the folder of the executable, if the variable is not set. If the
    /// program was started through a link, it is the folder that the link leads to.
    pub fn beside_program(self) -> Self {
        Self { beside_program: true, ..self }
    }

    /// Takes this file, which has to exist, and reads neither the variable nor the folder of the program: for
    /// a file that the user names by an argument.
    pub fn file(self, file: impl Into<PathBuf>) -> Self {
        Self { file: Some(file.into()), ..self }
    }

    /// The program's own folders of plugins. [`load`](Self::load) installs them, followed by the file's: of
    /// several backends with one name, the first is used. Do not call `Plugins::install`
    /// before `load`, since it is a use of the group of backends.
    ///
    /// [`trust_any_owner`](device_plugin::Plugins::trust_any_owner) holds for the file too.
    #[cfg(feature = "plugins")]
    pub fn plugins(self, plugins: device_plugin::Plugins) -> Self {
        Self { plugins: Some(plugins), ..self }
    }

    /// Finds the file, reads it, and sets what it says: first in `main`, before groups are used. Blocks while
    /// it reads files.
    ///
    /// Each value holds where its variable is not set. In a process that is
    /// [elevated](device_registry::backend::is_elevated), only a file that [code names](Self::file) is read,
    /// and the report says so.
    ///
    /// # Errors
    ///
    /// [`Error`] has the file, the line and the column of a mistake. Nothing is set then, with one exception:
    /// an option that an entry does not have is found last, once the folders of plugins were read.
    #[cfg_attr(feature = "plugins", track_caller)]
    pub fn load(&self) -> Result<ConfigReport, Error> {
        let mut searched = Vec::new();
        let found = self.find(&mut searched)?;
        let Some(Found { path, bytes }) = found else { return self.without_file(searched) };
        let document = source::text(&bytes)
            .and_then(|text| document::parse(text, &by_name::names()))
            .map_err(|mistake| Error::invalid(&path, mistake))?;
        self.check_plugins(&path, &document)?;
        let selection = apply::check(&path, &document)?;
        apply::apply(&path, &document, selection)?;
        #[cfg(feature = "plugins")]
        let plugins = self.install(&path, &document)?;
        Ok(ConfigReport {
            values: apply::values(&path, &document)?,
            file: Some(path),
            searched,
            #[cfg(feature = "plugins")]
            plugins,
        })
    }

    fn without_file(&self, searched: Vec<String>) -> Result<ConfigReport, Error> {
        Ok(ConfigReport {
            file: None,
            searched,
            values: Vec::new(),
            #[cfg(feature = "plugins")]
            plugins: self.plugins.as_ref().map(device_plugin::Plugins::install).transpose()?,
        })
    }

    fn find(&self, searched: &mut Vec<String>) -> Result<Option<Found>, Error> {
        if let Some(file) = &self.file {
            return Found::read(file.clone(), false).map(Some);
        }
        match path_variable(Self::VARIABLE) {
            Ok(Some(file)) if !file.is_empty() => {
                let file = PathBuf::from(file);
                if !file.is_absolute() {
                    return Err(Error::Relative(file));
                }
                return Found::read(file, true).map(Some);
            }
            Ok(_) => searched.push(format!("{} is not set", Self::VARIABLE)),
            Err(elevated) => searched.push(format!("{} is ignored: {elevated}", Self::VARIABLE)),
        }
        if !self.beside_program {
            return Ok(None);
        }
        if is_elevated() {
            let reason =
                "this process has more rights than its user, who may link to the program from any folder";
            searched.push(format!("{} beside the program is ignored: {reason}", Self::FILE));
            return Ok(None);
        }
        match beside_program() {
            Ok(file) => match Found::read(file.clone(), false) {
                Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    searched.push(format!("{} does not exist", shown_path(&file)));
                    Ok(None)
                }
                other => other.map(Some),
            },
            Err(error) => {
                searched.push(format!("{} beside the program: cannot find the program: {error}", Self::FILE));
                Ok(None)
            }
        }
    }

    /// A file that names folders of plugins is held to the rule of those folders.
    #[cfg(feature = "plugins")]
    fn check_plugins(&self, file: &Path, document: &Document) -> Result<(), Error> {
        let Some(folders) = &document.plugins else { return Ok(()) };
        let plugins = self.plugins.clone().unwrap_or_default();
        let untrusted = |reason| Error::Untrusted { file: file.into(), line: folders.at.line, reason };
        plugins.check_owner(file).map_err(untrusted)
    }

    #[cfg(not(feature = "plugins"))]
    fn check_plugins(&self, file: &Path, document: &Document) -> Result<(), Error> {
        let Some(folders) = &document.plugins else { return Ok(()) };
        let message =
            "`plugins`: this program reads no plugins; it needs the feature `plugins` of the crate \
                       device-config"
                .to_owned();
        Err(Error::invalid(file, source::Mistake { at: folders.at, message }))
    }

    #[cfg(feature = "plugins")]
    #[track_caller]
    fn install(
        &self,
        file: &Path,
        document: &Document,
    ) -> Result<Option<device_plugin::InstallReport>, Error> {
        let folders = document.plugins.iter().flat_map(|folders| &folders.value);
        let mut plugins = self.plugins.clone();
        for folder in folders {
            plugins = Some(plugins.unwrap_or_default().folder(apply::folder_of(file, folder)));
        }
        Ok(plugins.map(|plugins| plugins.install()).transpose()?)
    }
}

impl Found {
    fn read(path: PathBuf, by_variable: bool) -> Result<Self, Error> {
        let read = |path: &Path| {
            let path = path.canonicalize()?;
            Ok(Self { bytes: source::read(&path)?, path })
        };
        read(&path).map_err(|source| Error::Read { file: path, by_variable, source })
    }
}

/// The file in the folder of the executable, behind links.
fn beside_program() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let program = program.canonicalize().unwrap_or(program);
    Ok(program.with_file_name(Config::FILE))
}
