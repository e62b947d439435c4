//! What `Plugins::install` has done.

use std::fmt;
use std::path::{Path, PathBuf};

use device_registry::registry::State;
use entry_points::message::{shown, shown_path};

use crate::abi;
use crate::file::manifest::Manifest;

/// What [`Plugins::install`](crate::Plugins::install) installed, what it skipped, and where it searched.
///
/// `Display` prints all of it, a line each. `device_registry::backends().report()` has the states of the
/// backends, and the reasons too.
#[derive(Clone, Debug, Default)]
pub struct InstallReport {
    pub(super) installed: Vec<Manifest>,
    /// The state of each, in the same order.
    pub(super) states: Vec<State>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) searched: Vec<Searched>,
}

impl InstallReport {
    /// The manifests whose backends, or entries of [other groups](crate::group), were installed, in the order
    /// of their folders and file names. Of several
    /// with one name, only the first is used, and none if a linked backend has the name.
    #[must_use]
    pub fn installed(&self) -> &[Manifest] {
        &self.installed
    }

    /// The manifests and folders that were skipped, each with the reason. A manifest for another group is not
    /// among them.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// The folders that were read, without links, each once and in the order in which they were read.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.searched.iter().filter_map(|one| match one {
            Searched::Folder { path, .. } => Some(&**path),
            _ => None,
        })
    }

    /// Where backends were searched, as a note in one line.
    pub(super) fn searched(&self) -> String {
        let searched: Vec<_> = self.searched.iter().map(ToString::to_string).collect();
        match &searched[..] {
            [] => "no folder was searched for backends in files".to_owned(),
            some => format!("searched for backends in files: {}", some.join(", ")),
        }
    }

    pub(super) fn skip(&mut self, what: impl Into<String>, reason: impl Into<String>) {
        self.skipped.push(Skipped { what: what.into(), reason: reason.into() });
    }
}

impl fmt::Display for InstallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.searched())?;
        for (at, manifest) in self.installed.iter().enumerate() {
            let name = manifest.name();
            let package = manifest.package();
            let version = manifest.version();
            write!(f, "\ninstalled `{name}`")?;
            if manifest.group() != abi::BACKENDS {
                write!(f, " of `{}`", manifest.group())?;
            }
            write!(f, " ({package} {version} in {})", shown_path(manifest.library()))?;
            if let Some(state @ (State::Disabled { .. } | State::Duplicate { .. })) = self.states.get(at) {
                write!(f, ", which is not used: {state}")?;
            }
        }
        self.skipped.iter().try_for_each(|skipped| write!(f, "\n{skipped}"))
    }
}

/// A manifest, a folder or a variable that [`Plugins::install`](crate::Plugins::install) skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    what: String,
    reason: String,
}

impl Skipped {
    /// What was skipped: the path of a manifest or a folder, or the name of a variable. It is escaped for
    /// messages.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What is wrong with it, and what is expected.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is skipped: {}", self.what, self.reason)
    }
}

/// A place where manifests were expected.
#[derive(Clone, Debug)]
pub(super) enum Searched {
    Folder {
        path: PathBuf,
        manifests: usize,
        /// The name of a library, if there are no manifests.
        library: Option<String>,
    },
    /// A folder that does not exist or cannot be read, or a variable that is not set, with the reason.
    Nothing { place: String, reason: &'static str },
}

impl fmt::Display for Searched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder { path, library: Some(library), .. } => write!(
                f,
                "{} (no manifests; if `{}` is a backend, `devices plugin manifest` prints one)",
                shown_path(path),
                shown(library)
            ),
            Self::Folder { path, manifests: 0, .. } => write!(f, "{} (no manifests)", shown_path(path)),
            Self::Folder { path, manifests: 1, .. } => write!(f, "{} (1 manifest)", shown_path(path)),
            Self::Folder { path, manifests, .. } => write!(f, "{} ({manifests} manifests)", shown_path(path)),
            Self::Nothing { place, reason } => write!(f, "{place} ({reason})"),
        }
    }
}
