//! Chains of causes, which cross the border as texts.

use std::error::Error;
use std::fmt;

use device_registry::BackendErrorKind;
use device_registry::backend::BackendError;

/// An error with a message and the messages of its causes, the nearest first.
pub(crate) fn error(kind: BackendErrorKind, messages: &[impl AsRef<str>]) -> BackendError {
    let (message, causes) = match messages {
        [message, causes @ ..] => (message.as_ref(), causes),
        [] => ("", &messages[..0]),
    };
    let error = BackendError::new(kind, message);
    match chain(causes) {
        Some(cause) => error.with_source(cause),
        None => error,
    }
}

/// The causes as one error.
pub(crate) fn chain(messages: &[impl AsRef<str>]) -> Option<Box<dyn Error + Send + Sync>> {
    let link = |source, message: &_| {
        let message = AsRef::<str>::as_ref(message).to_owned();
        Some(Box::new(Cause { message, source }))
    };
    messages.iter().rfold(None, link).map(|cause| cause as _)
}

/// The messages of an error and of its causes.
pub(crate) fn texts(error: &(dyn Error + 'static)) -> Vec<String> {
    std::iter::successors(Some(error), |&error| error.source()).map(ToString::to_string).collect()
}

#[derive(Debug)]
struct Cause {
    message: String,
    source: Option<Box<Cause>>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
