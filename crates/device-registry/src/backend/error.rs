//! What a backend reports when a call did not work.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// What a backend reports when a call did not work.
///
/// Anybody can make one. The core adds the device and the call.
///
/// ```
/// use device_registry::backend::{BackendError, BackendErrorKind};
///
/// let error = BackendError::out_of_memory(4096, Some(100));
/// assert_eq!(error.to_string(), "out of memory: 4096 bytes asked for, 100 free");
///
/// let error = BackendError::lost("the device fell off the bus").with_source(std::io::Error::other("Xid 79"));
/// assert_eq!(error.kind(), BackendErrorKind::Lost);
/// ```
#[derive(Clone, Debug)]
pub struct BackendError {
    kind: BackendErrorKind,
    message: Arc<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// What kind of thing went wrong, as far as callers act on it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// There is not enough memory on the device.
    OutOfMemory {
        /// The bytes that were asked for.
        asked: u64,
        /// The bytes that were free, if that is known. Fragments may be smaller.
        free: Option<u64>,
    },
    /// The backend or the device does not offer this at all.
    Unsupported,
    /// What it needs is not there on this machine, or not now.
    Unavailable,
    /// The device is gone, and every later call on it will say so. [`Device::reset`](crate::Device::reset) may bring it
    /// back.
    Lost,
    /// The call made no sense to the backend.
    Invalid,
    /// Anything else.
    Other,
}

impl BackendError {
    /// An error of a kind, with a message in lower case and without a full stop.
    #[must_use]
    pub fn new(kind: BackendErrorKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string().into(), source: None }
    }

    /// The device has not enough memory for `asked` bytes.
    #[must_use]
    pub fn out_of_memory(asked: u64, free: Option<u64>) -> Self {
        let kind = BackendErrorKind::OutOfMemory { asked, free };
        match free {
            Some(free) => Self::new(kind, format_args!("{asked} bytes asked for, {free} free")),
            None => Self::new(kind, format_args!("{asked} bytes asked for")),
        }
    }

    /// The backend or the device does not offer `what`.
    #[must_use]
    pub fn unsupported(what: impl fmt::Display) -> Self {
        Self::new(BackendErrorKind::Unsupported, what)
    }

    /// Something is not there; `why` says what was looked for.
    #[must_use]
    pub fn unavailable(why: impl fmt::Display) -> Self {
        Self::new(BackendErrorKind::Unavailable, why)
    }

    /// The device is gone.
    #[must_use]
    pub fn lost(message: impl fmt::Display) -> Self {
        Self::new(BackendErrorKind::Lost, message)
    }

    /// The call made no sense.
    #[must_use]
    pub fn invalid(message: impl fmt::Display) -> Self {
        Self::new(BackendErrorKind::Invalid, message)
    }

    /// Anything else.
    #[must_use]
    pub fn other(message: impl fmt::Display) -> Self {
        Self::new(BackendErrorKind::Other, message)
    }

    /// Adds the error behind this one.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into().into()), ..self }
    }

    /// What kind of thing went wrong.
    #[must_use]
    pub fn kind(&self) -> BackendErrorKind {
        self.kind
    }

    /// The message without the kind.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            BackendErrorKind::OutOfMemory { .. } => "out of memory: ",
            BackendErrorKind::Unsupported => "not supported: ",
            BackendErrorKind::Unavailable => "unavailable: ",
            BackendErrorKind::Lost => "device lost: ",
            BackendErrorKind::Invalid | BackendErrorKind::Other => "",
        })?;
        f.write_str(&self.message)
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
