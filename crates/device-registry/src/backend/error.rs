//! The error that a backend returns.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The error that a backend returns from a call.
///
/// Backends, kernels and native code construct it. The core adds the device and the call.
///
/// ```
/// use device_registry::backend::{BackendError, BackendErrorKind};
///
/// let error = BackendError::out_of_memory(4096, Some(100));
/// assert_eq!(error.to_string(), "out of memory: 4096 bytes asked for, 100 bytes free");
///
/// let error = BackendError::out_of_memory(3 << 29, Some(130_023_424));
/// assert_eq!(error.to_string(), "out of memory: 1.5 GiB asked for, 124 MiB free");
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

/// The kind of a backend's error, for a caller that reacts to each kind differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// The device does not have enough memory.
    OutOfMemory {
        /// The number of bytes requested.
        asked: u64,
        /// The number of bytes that were free, if known. The largest free block may be smaller.
        free: Option<u64>,
    },
    /// The backend or the device does not offer this at all.
    Unsupported,
    /// This machine lacks something that the backend needs, permanently or at the moment.
    Unavailable,
    /// The device is lost, and every later call on it returns this error.
    /// [`Device::reset`](crate::Device::reset) may recover it.
    Lost,
    /// The call is invalid, for example in one of its arguments.
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

    /// The device does not have enough memory for `asked` bytes.
    #[must_use]
    pub fn out_of_memory(asked: u64, free: Option<u64>) -> Self {
        let kind = BackendErrorKind::OutOfMemory { asked, free };
        match free.map(|free| sizes(asked, free)) {
            Some([asked, free]) => Self::new(kind, format_args!("{asked} asked for, {free} free")),
            None => Self::new(kind, format_args!("{} asked for", size(asked))),
        }
    }

    /// The backend or the device does not offer `what`.
    #[must_use]
    pub fn unsupported(what: impl fmt::Display) -> Self {
        Self::new(BackendErrorKind::Unsupported, what)
    }

    /// The machine lacks something that the backend needs. `why` says what the backend has looked for.
    #[must_use]
    pub fn unavailable(why: impl fmt::Display) -> Self {
        Self::new(BackendErrorKind::Unavailable, why)
    }

    /// The device is lost: every later call on it fails.
    #[must_use]
    pub fn lost(message: impl fmt::Display) -> Self {
        Self::new(BackendErrorKind::Lost, message)
    }

    /// The call is invalid.
    #[must_use]
    pub fn invalid(message: impl fmt::Display) -> Self {
        Self::new(BackendErrorKind::Invalid, message)
    }

    /// An error of no other kind.
    #[must_use]
    pub fn other(message: impl fmt::Display) -> Self {
        Self::new(BackendErrorKind::Other, message)
    }

    /// Adds the cause of this error.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into().into()), ..self }
    }

    /// The same error, with more at the end of its message.
    pub(crate) fn with_note(self, note: impl fmt::Display) -> Self {
        Self { message: format!("{}{note}", self.message).into(), ..self }
    }

    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self.kind, BackendErrorKind::OutOfMemory { .. })
    }

    /// The same error as one of kind [`Lost`](BackendErrorKind::Lost).
    pub(crate) fn into_lost(self) -> Self {
        Self { kind: BackendErrorKind::Lost, ..self }
    }

    /// The kind of the error.
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

/// Two numbers of bytes for a message, of which the first is too large: exact if they look alike otherwise.
pub(crate) fn sizes(asked: u64, limit: u64) -> [String; 2] {
    match [asked, limit].map(size) {
        [one, other] if one == other => [asked, limit].map(|bytes| format!("{bytes} bytes")),
        both => both,
    }
}

/// A number of bytes: exact below a mebibyte, and else in the largest unit that is not above it.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["MiB", "GiB", "TiB", "PiB", "EiB"];
    let Some(unit) = (bytes.max(1).ilog2() / 10).checked_sub(2) else { return format!("{bytes} bytes") };
    let value = bytes as f64 / (1_u64 << (20 + 10 * unit)) as f64;
    let digits = usize::from(value.fract() >= 0.05 && value < 100.0);
    format!("{value:.digits$} {}", UNITS[unit as usize])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_differ() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            ((1 << 20) - 1, "1048575 bytes"),
            (1 << 20, "1 MiB"),
            (3 << 19, "1.5 MiB"),
            (943_718_400, "900 MiB"),
            (1 << 40, "1 TiB"),
            (1 << 60, "1 EiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
        assert_eq!(sizes((1 << 30) + 1, 1 << 30), ["1073741825 bytes", "1073741824 bytes"]);
    }
}
