//! The error type of `load` functions.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The error of a `load` function that cannot return a plugin.
///
/// There are two kinds, since callers handle them differently. The plugin is *unavailable* on this machine:
/// the driver or the hardware is missing, and the plugin itself is sound. It may turn up later, so a use of
/// the name runs `load` again once [`UNAVAILABLE_FOR`](Self::UNAVAILABLE_FOR) has passed. Or it *failed*,
/// which every use of the name returns until a [`retry`](crate::Group::retry).
///
/// `?` converts any error, which then counts as a failure. Only
/// [`LoadError::Unavailable`](crate::LoadError::Unavailable) of another entry point stays unavailable. For
/// other errors that mean a missing driver, write `.map_err(LoadFailure::unavailable)?`. Like
/// `anyhow::Error`, this type does not implement `Error`: that would rule out the conversion from any error.
///
/// ```
/// use entry_points::LoadFailure;
///
/// fn load() -> Result<Box<u8>, LoadFailure> {
///     let level: u8 = "7".parse()?;
///     if level > 9 {
///         return Err(LoadFailure::unavailable("this machine goes up to 9"));
///     }
///     Ok(Box::new(level))
/// }
/// assert_eq!(*load().unwrap(), 7);
/// ```
#[derive(Clone)]
pub struct LoadFailure {
    unavailable: bool,
    /// The message and its chain of sources, innermost last. They are formatted once, while `load` runs:
    /// there a panic in an error's `Display` is a failure of that plugin, while in a report it would break
    /// the whole table.
    messages: Arc<[String]>,
    cause: Arc<dyn Error + Send + Sync>,
}

impl LoadFailure {
    /// How long uses of a name return an [unavailable](Self::unavailable) failure, before the next use runs
    /// `load` again: one second. A loop that uses the name searches for libraries at most this often, and
    /// soon finds a newly installed driver.
    pub const UNAVAILABLE_FOR: Duration = Duration::from_secs(1);

    /// A failure with this message: what went wrong, in lower case and without a full stop.
    #[must_use]
    pub fn new(message: impl fmt::Display) -> Self {
        Self::of(false, Message { text: message.to_string(), source: None })
    }

    /// The plugin is sound, and its driver or hardware is missing on this machine. `reason` says what was
    /// looked for, and what to install.
    ///
    /// Unlike any other failure it is not permanent: uses of the name return it for
    /// [`UNAVAILABLE_FOR`](Self::UNAVAILABLE_FOR), and the next use runs `load` again. So `load` finds a
    /// driver or a server that turns up while the program runs. `load` may run many times: it releases what
    /// it has opened and allocated before it returns this failure.
    ///
    /// It is for a plugin that can do nothing at the moment. A plugin whose driver works but has nothing to
    /// offer yet loads, and says so through its own interface.
    #[must_use]
    pub fn unavailable(reason: impl fmt::Display) -> Self {
        Self::of(true, Message { text: reason.to_string(), source: None })
    }

    /// Makes `source` the cause behind the message, in place of the error from which this failure was made.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let text = self.messages[0].clone();
        Self::of(self.unavailable, Message { text, source: Some(source.into()) })
    }

    /// Whether the plugin is unavailable on this machine, as opposed to broken.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.unavailable
    }

    /// The error from which this failure was made.
    #[must_use]
    pub fn cause(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.cause
    }

    /// The message and its chain of sources, innermost last.
    #[must_use]
    pub fn messages(&self) -> &[String] {
        &self.messages
    }

    pub(crate) fn of(unavailable: bool, cause: impl Error + Send + Sync + 'static) -> Self {
        // Long enough for real chains. A `source` that leads back to itself has no end.
        const LONGEST_CHAIN: usize = 16;
        let first: &(dyn Error + 'static) = &cause;
        let chain = std::iter::successors(Some(first), |&error| error.source());
        let messages = chain.take(LONGEST_CHAIN).map(|error| error.to_string()).collect();
        Self { unavailable, messages, cause: Arc::new(cause) }
    }
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.messages[0])
    }
}

impl fmt::Debug for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadFailure")
            .field("unavailable", &self.unavailable)
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Message {
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Message {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_kept_and_not_repeated_in_the_message() {
        let failure = LoadFailure::unavailable("no driver").with_source(std::io::Error::other("ENODEV"));
        assert!(failure.is_unavailable());
        assert_eq!(failure.to_string(), "no driver");
        assert_eq!(failure.cause().source().unwrap().to_string(), "ENODEV");
        assert_eq!(failure.messages(), ["no driver", "ENODEV"]);
    }

    #[test]
    fn what_is_unavailable_elsewhere_makes_this_unavailable_too() {
        use crate::entry_point::EntryPoint;
        use crate::group::Group;
        static GROUP: Group<u8> = Group::new("test.elsewhere");
        static ABSENT: EntryPoint<u8> =
            EntryPoint::new("absent", || Err(LoadFailure::unavailable("no driver")));
        static BROKEN: EntryPoint<u8> = EntryPoint::new("broken", || Err(LoadFailure::new("a bug")));
        for (point, expected) in [(&ABSENT, true), (&BROKEN, false)] {
            GROUP.register(point).unwrap();
            let error = GROUP.load(point.name()).unwrap_err();
            assert_eq!(LoadFailure::from(error).is_unavailable(), expected, "{point:?}");
        }
    }

    #[test]
    fn a_chain_of_errors_without_an_end_is_cut() {
        #[derive(Debug, thiserror::Error)]
        #[error("round and round")]
        struct Endless(#[source] Inner);
        #[derive(Debug)]
        struct Inner;
        impl fmt::Display for Inner {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("and round")
            }
        }
        impl Error for Inner {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&Inner)
            }
        }
        assert_eq!(LoadFailure::from(Endless(Inner)).messages().len(), 16);
    }

    #[test]
    fn an_error_converted_by_the_question_mark_can_be_downcast() {
        let failure = LoadFailure::from("x".parse::<u8>().unwrap_err());
        assert!(!failure.is_unavailable());
        assert!(failure.cause().is::<std::num::ParseIntError>());
    }
}
