//! The errors of looking up, loading, registering and configuring, in any group. For devices, `DeviceError`
//! of the crate `device-registry` has the message for an unknown backend.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::failure::LoadFailure;
use crate::group_name::GroupName;
use crate::message::{and, did_you_mean, shown, shown_path};
use crate::options::{OptionOrigin, OptionSpec};
use crate::report::Report;
use crate::state::Cause;

/// Why a name could not be loaded.
///
/// It is cheap to clone, since later uses of a name return the remembered failure. `Display` has several
/// lines if it includes the report of the group. [`source`](Error::source) is the plugin's own chain of
/// errors. `Debug` prints the message and the chain, for programs and tests that return the error from
/// `main`.
#[derive(Clone)]
#[non_exhaustive]
pub enum LoadError {
    /// The group does not have the name.
    Unknown(Arc<UnknownName>),
    /// A switch turned the name off.
    #[non_exhaustive]
    Disabled {
        /// The name, its group and its package.
        entry: EntryName,
        /// The switch: a variable and its value, such as `CODEC_DECODER_DISABLE=vorb*`, or the program.
        by: Arc<str>,
    },
    /// Several packages offer the name, so none of them has it.
    #[non_exhaustive]
    Duplicate {
        /// The name and its group.
        entry: EntryName,
        /// The packages that offer the name, such as `codec-a 0.1.0`.
        offered_by: Arc<[String]>,
        /// What the user can do.
        remedy: Arc<str>,
    },
    /// The plugin cannot work on this machine at the moment: its driver or hardware is missing. A use
    /// looks again after [`LoadFailure::UNAVAILABLE_FOR`].
    #[non_exhaustive]
    Unavailable {
        /// The name, its group and its package.
        entry: EntryName,
        /// The failure that `load` returned.
        failure: LoadFailure,
    },
    /// `load` returned an error, which is remembered until [`Group::retry`](crate::Group::retry).
    #[non_exhaustive]
    Failed {
        /// The name, its group and its package.
        entry: EntryName,
        /// The failure that `load` returned.
        failure: LoadFailure,
    },
    /// `load` panicked, which is remembered until [`Group::retry`](crate::Group::retry).
    #[non_exhaustive]
    Panicked {
        /// The name, its group and its package.
        entry: EntryName,
        /// The message of the panic.
        message: Arc<str>,
    },
    /// Loading the name needs the name itself: directly, through others, or across threads.
    #[non_exhaustive]
    Cycle {
        /// The name, its group and its package.
        entry: EntryName,
        /// The names on the cycle, with the same name at both ends.
        path: Arc<[String]>,
    },
    /// At the time of a fork, another thread of the parent process was loading this name, or briefly held a
    /// lock to load any name. That thread does not exist in this process, so waiting for it would never end.
    #[non_exhaustive]
    Forked {
        /// The name, its group and its package.
        entry: EntryName,
    },
}

impl LoadError {
    /// The name that was looked up; for [`Unknown`](Self::Unknown), the text as the caller passed it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Unknown(unknown) => &unknown.asked,
            Self::Disabled { entry, .. }
            | Self::Duplicate { entry, .. }
            | Self::Unavailable { entry, .. }
            | Self::Failed { entry, .. }
            | Self::Panicked { entry, .. }
            | Self::Cycle { entry, .. }
            | Self::Forked { entry } => entry.name,
        }
    }

    /// The failure that the plugin's `load` returned, if it returned one.
    #[must_use]
    pub fn failure(&self) -> Option<&LoadFailure> {
        match self {
            Self::Unavailable { failure, .. } | Self::Failed { failure, .. } => Some(failure),
            _ => None,
        }
    }

    /// The messages of the failure's sources, innermost last.
    fn causes(&self) -> &[String] {
        self.failure().map(|failure| &failure.messages()[1..]).unwrap_or_default()
    }

    /// The error in words, for the state of the entry point.
    pub(crate) fn in_words(&self) -> Cause {
        let messages = std::iter::once(self.to_string()).chain(self.causes().iter().cloned()).collect();
        Cause { brief: self.brief(), messages }
    }

    /// The error in one line of a report, which names the entry point already: the messages of the whole
    /// chain.
    ///
    /// Each message is cut to the beginning of its first line. A message can quote a whole report, which
    /// quotes an earlier one in turn, so that uncut messages would double in length each time.
    fn brief(&self) -> String {
        match (self, self.failure()) {
            (_, Some(failure)) => {
                let messages: Vec<_> = failure.messages().iter().map(|message| beginning(message)).collect();
                messages.join(": ")
            }
            (Self::Panicked { message, .. }, _) => format!("panicked: {}", beginning(message)),
            (Self::Cycle { path, .. }, _) => format!("needs itself: {}", path.join(" -> ")),
            (other, None) => other.to_string(),
        }
    }
}

/// The beginning of a message.
fn beginning(message: &str) -> String {
    const LONGEST: usize = 200;
    let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let mut beginning: String = first.chars().take(LONGEST).collect();
    if beginning.len() < first.len() || lines.next().is_some() {
        beginning.push('…');
    }
    beginning
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(unknown) => unknown.fmt(f),
            Self::Disabled { entry, by } => write!(f, "{entry} is disabled by {by}"),
            Self::Duplicate { entry, offered_by, remedy } => {
                write!(f, "{} is offered by {}; {remedy}", entry.title(), and(offered_by))
            }
            Self::Unavailable { entry, failure } => write!(f, "{entry} is unavailable: {failure}"),
            Self::Failed { entry, failure } => {
                write!(f, "{entry} failed to load: {failure}{}", entry.remedy(&failure.messages()[0]))
            }
            Self::Panicked { entry, message } => {
                write!(f, "{entry} panicked while loading: {message}{}", entry.remedy(message))
            }
            Self::Cycle { entry, path } => {
                write!(f, "{entry} needs itself to load: {}", path.join(" -> "))
            }
            Self::Forked { entry } => write!(
                f,
                "{entry} cannot be loaded in this process: a thread of the parent process was loading an entry \
                 point at the time of the fork; load it before the fork, or start a new program"
            ),
        }
    }
}

impl fmt::Debug for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        self.causes().iter().try_for_each(|cause| write!(f, "\ncaused by: {cause}"))
    }
}

impl Error for LoadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // `Display` includes the plugin's own message already, so the chain continues behind it.
        self.failure().and_then(|failure| failure.cause().source())
    }
}

// It stands beside `LoadError`, since a failure knows nothing of the errors that carry it.
impl<E: Error + Send + Sync + 'static> From<E> for LoadFailure {
    fn from(error: E) -> Self {
        let other: Option<&LoadError> = (&error as &dyn Any).downcast_ref();
        Self::of(matches!(other, Some(LoadError::Unavailable { .. })), error)
    }
}

/// A name in a group and its package, as errors show it: ``decoder `vorbis` (codec-vorbis 0.1.0)``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryName {
    pub(crate) name: &'static str,
    pub(crate) group: &'static GroupName,
    pub(crate) provider: Arc<Provider>,
}

/// Who offers an entry point.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Provider {
    /// The package, or the place in the source.
    pub(crate) name: String,
    /// What the user can do if the entry point is broken; may be empty.
    pub(crate) remedy: String,
}

impl EntryName {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The group.
    #[must_use]
    pub fn group(&self) -> &'static str {
        self.group.name
    }

    fn title(&self) -> impl fmt::Display {
        self.group.entry(self.name)
    }

    /// The end of a message that it is broken: on a separate line if the message has several.
    fn remedy(&self, message: &str) -> impl fmt::Display {
        let between = if message.contains('\n') { "\n" } else { "; " };
        fmt::from_fn(move |f| match &*self.provider.remedy {
            "" => Ok(()),
            remedy => write!(f, "{between}{remedy}"),
        })
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.title(), self.provider.name)
    }
}

/// A name that a group does not have, with the report of the group.
#[derive(Clone, Debug)]
pub struct UnknownName {
    pub(crate) asked: String,
    pub(crate) nearest: Option<&'static str>,
    pub(crate) autoloaded: bool,
    pub(crate) report: Report,
}

impl UnknownName {
    /// The name, as the caller passed it.
    #[must_use]
    pub fn asked(&self) -> &str {
        &self.asked
    }

    /// A similar name that the group has, for a hint: "did you mean …?".
    #[must_use]
    pub fn nearest(&self) -> Option<&'static str> {
        self.nearest
    }

    /// Whether this program has an `autoload!` line. If not, a crate in Cargo.toml may have the name and not
    /// be linked.
    #[must_use]
    pub fn is_autoloaded(&self) -> bool {
        self.autoloaded
    }

    /// The entry points of the group and their states. Its [`advice`](Report::advice) says why one may be
    /// missing.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The report for a message, with the first 64 rows.
    #[must_use]
    pub fn table(&self) -> impl fmt::Display {
        fmt::from_fn(|f| self.report.fmt_rows(f, 64))
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {} is called `{}`", self.report.group.any_entry(), shown(&self.asked))?;
        write!(f, "{}\n{}", did_you_mean(self.nearest), self.table())
    }
}

/// Why an entry point could not be registered. The entry points that the group had before keep their names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The group itself has the name, as a built-in entry point or a reserved word.
    #[error(
        "`{name}` is a built-in or reserved name of {group}; {by} cannot register it and needs another name"
    )]
    #[non_exhaustive]
    BuiltIn {
        /// The name.
        name: &'static str,
        /// The group.
        group: &'static str,
        /// The package of the refused entry point, or its place in the source.
        by: String,
    },
    /// Another entry point has the name.
    #[error("{entry} already exists; {by} cannot take its name, and `register_override` replaces it")]
    #[non_exhaustive]
    Taken {
        /// The name, its group and the package that has it.
        entry: EntryName,
        /// The package of the refused entry point, or its place in the source.
        by: String,
    },
    /// The name has been used already, so that its entry point cannot change.
    #[error("{entry} is already in use; {by} can replace it only before its first use")]
    #[non_exhaustive]
    InUse {
        /// The name, its group and the package that has it.
        entry: EntryName,
        /// The package of the refused entry point, or its place in the source.
        by: String,
    },
    /// The name of an installed entry point, or of one of its options, is not valid.
    #[error(
        "cannot install {} from {}: expected 1 to 32 bytes of a-z, 0-9 and _, without a digit at the start{}",
        shown_name(name, option.as_deref()), shown_path(file),
        if option.is_some() { ", and each option once" } else { "" }
    )]
    #[non_exhaustive]
    InvalidName {
        /// The name.
        name: String,
        /// The option, if it is the invalid one.
        option: Option<String>,
        /// The group.
        group: &'static str,
        /// The file.
        file: PathBuf,
    },
    /// Another thread of the parent process was changing the group at the time of the fork.
    #[error(
        "`{name}` cannot be registered in {group} in this process: a thread of the parent process was changing \
         the group at the time of the fork; register it before the fork"
    )]
    #[non_exhaustive]
    Forked {
        /// The name.
        name: &'static str,
        /// The group.
        group: &'static str,
    },
}

/// The name that is not valid, in a message.
fn shown_name(name: &str, option: Option<&str>) -> String {
    match option {
        Some(option) => format!("`{}` with the option `{}`", shown(name), shown(option)),
        None => format!("`{}`", shown(name)),
    }
}

/// Why [`Group::set_option`](crate::Group::set_option) has not set an option. `Debug` prints the message.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// The group does not have the name.
    #[error("{0}")]
    Unknown(Arc<UnknownName>),
    /// The entry point does not have the option.
    #[error("{entry}: {option}")]
    #[non_exhaustive]
    UnknownOption {
        /// The name, its group and its package.
        entry: EntryName,
        /// The option, and the options that the entry point has.
        option: Arc<UnknownOption>,
    },
    /// The entry point is loaded, and does not read its options again.
    #[error("{entry} is already loaded; set its option `{option}` before the first use of its name")]
    #[non_exhaustive]
    Loaded {
        /// The name, its group and its package.
        entry: EntryName,
        /// The option.
        option: &'static str,
    },
    /// The entry point is loading at the moment, and has read its options.
    #[error("{entry} is already loading; set its option `{option}` before the first use of its name")]
    #[non_exhaustive]
    Loading {
        /// The name, its group and its package.
        entry: EntryName,
        /// The option.
        option: &'static str,
    },
    /// Another thread of the parent process was setting an option of the entry point at the time of the fork.
    #[error(
        "no option of {entry} can be set in this process: a thread of the parent process was setting one at the time \
         of the fork; set it before the fork"
    )]
    #[non_exhaustive]
    Forked {
        /// The name, its group and its package.
        entry: EntryName,
    },
}

impl fmt::Debug for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An option that an entry point does not have. `Display` lists the options that it has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnknownOption {
    pub(crate) asked: String,
    /// `None` if the call that sets the option returns the error.
    pub(crate) set_by: Option<OptionOrigin>,
    pub(crate) nearest: Option<&'static str>,
    pub(crate) known: &'static [OptionSpec],
}

impl UnknownOption {
    /// The option, as the program or the environment spells it.
    #[must_use]
    pub fn asked(&self) -> &str {
        &self.asked
    }

    /// A similar option that the entry point has.
    #[must_use]
    pub fn nearest(&self) -> Option<&'static str> {
        self.nearest
    }

    /// The options that the entry point has.
    #[must_use]
    pub fn known(&self) -> &'static [OptionSpec] {
        self.known
    }
}

impl fmt::Display for UnknownOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown option `{}`", shown(&self.asked))?;
        if let Some(origin) = &self.set_by {
            write!(f, ", set by {origin}")?;
        }
        write!(f, "{}", did_you_mean(self.nearest))?;
        let Some(widest) = self.known.iter().map(|spec| spec.name().len()).max() else {
            return f.write_str("; there are no options");
        };
        // A note in a report is only the first line.
        f.write_str("\nthe options are:")?;
        let mut known = self.known.iter();
        known.try_for_each(|spec| write!(f, "\n  {:widest$}  {}", spec.name(), spec.description()))
    }
}

/// [`Group::configure`](crate::Group::configure) was called after the group's first use, which had read the
/// switches, or after [`Group::set_defaults`](crate::Group::set_defaults).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{group} {}; {}",
    match .defaults {
        Some(origin) => format!("has its switches from {origin}"),
        None => "is already in use".to_owned(),
    },
    match .defaults {
        Some(_) => "set them there, in the environment, or in code alone",
        None => "set its switches before the first look-up, listing or registration, or in the environment",
    }
)]
pub struct ConfigureError {
    pub(crate) group: &'static str,
    /// The origin of its defaults, if it has some.
    pub(crate) defaults: Option<Arc<str>>,
}

/// Why [`Group::set_defaults`](crate::Group::set_defaults) has set nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefaultsError {
    /// The group was used before, and has read its switches and options.
    #[error("{group} is already in use; set its defaults before the first look-up, listing or registration")]
    #[non_exhaustive]
    InUse {
        /// The group.
        group: &'static str,
    },
    /// The program has called [`Group::configure`](crate::Group::configure), which takes the place of all
    /// switches.
    #[error("the program sets the switches of {group} in code, by `Group::configure`")]
    #[non_exhaustive]
    Configured {
        /// The group.
        group: &'static str,
    },
    /// The group has defaults already.
    #[error("{group} has defaults already, from {by}")]
    #[non_exhaustive]
    AlreadySet {
        /// The group.
        group: &'static str,
        /// The origin of one of them.
        by: Arc<str>,
    },
}
