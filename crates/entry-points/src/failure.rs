//! Why a `load` function gave nothing.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// What a `load` function returns when it has no plugin to give.
///
/// Two cases are told apart, because callers act on them differently: the plugin is *unavailable* on this
/// machine (no driver, no hardware: nothing is wrong with it), or it *failed*.
///
/// Any error converts by `?`. Like `anyhow::Error`, and for the same reason, it is no `Error` itself.
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
    cause: Arc<dyn Error + Send + Sync>,
}

impl LoadFailure {
    /// A failure described by `message`: what went wrong, in lower case and without a full stop.
    #[must_use]
    pub fn new(message: impl fmt::Display) -> Self {
        Self { unavailable: false, cause: Arc::new(Message { text: message.to_string(), source: None }) }
    }

    /// The plugin is sound but has nothing to work with here: no driver, no hardware. `reason` says what was
    /// looked for, and what to install.
    #[must_use]
    pub fn unavailable(reason: impl fmt::Display) -> Self {
        Self { unavailable: true, ..Self::new(reason) }
    }

    /// Adds the error behind this one.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let message = Message { text: self.cause.to_string(), source: Some(source.into()) };
        Self { cause: Arc::new(message), ..self }
    }

    /// Whether the plugin is unavailable here, as opposed to broken.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.unavailable
    }

    /// The error that it was made of.
    #[must_use]
    pub fn cause(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.cause
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for LoadFailure {
    fn from(error: E) -> Self {
        Self { unavailable: false, cause: Arc::new(error) }
    }
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl fmt::Debug for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadFailure")
            .field("unavailable", &self.unavailable)
            .field("cause", &self.cause)
            .finish()
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
    }

    #[test]
    fn an_error_converted_by_the_question_mark_can_be_downcast() {
        let failure = LoadFailure::from("x".parse::<u8>().unwrap_err());
        assert!(!failure.is_unavailable());
        assert!(failure.cause().is::<std::num::ParseIntError>());
    }
}
