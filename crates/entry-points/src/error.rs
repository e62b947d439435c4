//! What can go wrong between a name and a plugin.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::failure::LoadFailure;
use crate::group_name::GroupName;
use crate::message::shown;
use crate::report::Report;

/// Why a name gave no plugin.
///
/// Cheap to clone: a failure is remembered and handed to everybody who asks for the name. `Display` tells all
/// that is known, in several lines where a table helps; [`source`](Error::source) is the plugin's own chain.
/// `Debug` is both, for those whose `main` or test returns the error.
#[derive(Clone)]
#[non_exhaustive]
pub enum LoadError {
    /// The group has no such name.
    Unknown(Arc<UnknownName>),
    /// The name is known, and a switch turned it off.
    #[non_exhaustive]
    Disabled {
        /// The name, its group and where it comes from.
        entry: EntryName,
        /// The variable and its value, such as `CODEC_DECODER_DISABLE=vorb*`, or the program.
        by: Arc<str>,
    },
    /// Several packages offer the name, so that none of them is used.
    #[non_exhaustive]
    Duplicate {
        /// The name and its group.
        entry: EntryName,
        /// What offers the name, such as `codec-a 0.1.0`.
        offered_by: Arc<[String]>,
        /// What to do about it.
        remedy: Arc<str>,
    },
    /// The plugin has nothing to work with on this machine.
    #[non_exhaustive]
    Unavailable {
        /// The name, its group and where it comes from.
        entry: EntryName,
        /// What the plugin said.
        failure: LoadFailure,
    },
    /// `load` returned an error.
    #[non_exhaustive]
    Failed {
        /// The name, its group and where it comes from.
        entry: EntryName,
        /// What the plugin said.
        failure: LoadFailure,
    },
    /// `load` panicked.
    #[non_exhaustive]
    Panicked {
        /// The name, its group and where it comes from.
        entry: EntryName,
        /// The panic's message.
        message: Arc<str>,
    },
    /// Loading the name needs the name itself: directly, through others, or across threads.
    #[non_exhaustive]
    Cycle {
        /// The name, its group and where it comes from.
        entry: EntryName,
        /// The way round, with the same name at both ends.
        path: Arc<[String]>,
    },
    /// Another thread of the parent was loading the name, or was about to, when this process was forked. That thread
    /// does not exist here, so there is nothing to wait for.
    #[non_exhaustive]
    Forked {
        /// The name, its group and where it comes from.
        entry: EntryName,
    },
}

impl LoadError {
    /// The name that was asked for; for [`Unknown`](Self::Unknown), as it was asked.
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

    /// What the plugin's `load` returned, if it came to that.
    #[must_use]
    pub fn failure(&self) -> Option<&LoadFailure> {
        match self {
            Self::Unavailable { failure, .. } | Self::Failed { failure, .. } => Some(failure),
            _ => None,
        }
    }
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
            Self::Failed { entry, failure } => write!(f, "{entry} failed to load: {failure}"),
            Self::Panicked { entry, message } => write!(f, "{entry} panicked while loading: {message}"),
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
        let causes = self.failure().map(|failure| &failure.messages()[1..]).unwrap_or_default();
        causes.iter().try_for_each(|cause| write!(f, "\ncaused by: {cause}"))
    }
}

impl Error for LoadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The plugin's own message stands in ours already; its chain goes on behind it.
        self.failure().and_then(|failure| failure.cause().source())
    }
}

/// A name in a group and the package behind it, as errors show it: ``decoder `vorbis` (codec-vorbis 0.1.0)``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryName {
    pub(crate) name: &'static str,
    pub(crate) group: &'static GroupName,
    pub(crate) whence: Arc<str>,
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
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.title(), self.whence)
    }
}

/// A name that a group does not have: what was asked, and what there is.
#[derive(Clone, Debug)]
pub struct UnknownName {
    pub(crate) asked: String,
    pub(crate) nearest: Option<&'static str>,
    pub(crate) autoloaded: bool,
    pub(crate) report: Report,
}

impl UnknownName {
    /// The name as it was asked for.
    #[must_use]
    pub fn asked(&self) -> &str {
        &self.asked
    }

    /// A name that the group has and that differs by a slip or two.
    #[must_use]
    pub fn nearest(&self) -> Option<&'static str> {
        self.nearest
    }

    /// Whether an `autoload!` line is part of this program. If not, the name may well stand in Cargo.toml.
    #[must_use]
    pub fn is_autoloaded(&self) -> bool {
        self.autoloaded
    }

    /// What there is, and in which state; its notes say why something may be missing.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {} is called `{}`", self.report.group.any_entry(), shown(&self.asked))?;
        if let Some(nearest) = self.nearest {
            write!(f, "; did you mean `{nearest}`?")?;
        }
        write!(f, "\n{}", self.report)
    }
}

/// Why an entry point could not be registered. Everything that was there before is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name belongs to the group itself, or is a word that the group reserves.
    #[error(
        "`{name}` is a built-in or reserved name of {group}; {by} cannot register it and needs another name"
    )]
    #[non_exhaustive]
    BuiltIn {
        /// The name.
        name: &'static str,
        /// The group.
        group: &'static str,
        /// Where the refused entry point comes from.
        by: String,
    },
    /// Another entry point has the name.
    #[error("{entry} already exists; {by} cannot take its name, and `register_override` replaces it")]
    #[non_exhaustive]
    Taken {
        /// The name, its group and what has it.
        entry: EntryName,
        /// Where the refused entry point comes from.
        by: String,
    },
    /// The name has been used already, and what is in use stays.
    #[error("{entry} is already in use; {by} can replace it only before its first use")]
    #[non_exhaustive]
    InUse {
        /// The name, its group and what has it.
        entry: EntryName,
        /// Where the refused entry point comes from.
        by: String,
    },
    /// Another thread of the parent was changing the group when this process was forked.
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

/// Switches were set after the group's first use, when they had been read already.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{group} is already in use; set its switches before the first look-up, listing or registration, or in the \
     environment"
)]
pub struct ConfigureError {
    pub(crate) group: &'static str,
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn and(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_sentences() {
        let items = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
        assert_eq!([and(&items(1)), and(&items(2)), and(&items(3))], ["0", "0 and 1", "0, 1 and 2"]);
    }
}
