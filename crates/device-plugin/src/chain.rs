//! Chains of causes, which cross the border as text.

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

/// The most messages of one error that cross the border. A `source` that leads back to itself has no end.
pub(crate) const LONGEST: usize = 64;

/// The messages of an error and of its causes.
pub(crate) fn texts(error: &(dyn Error + 'static)) -> Vec<String> {
    let chain = std::iter::successors(Some(error), |&error| error.source());
    chain.take(LONGEST).map(ToString::to_string).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Endless;

    impl fmt::Display for Endless {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("again")
        }
    }

    impl Error for Endless {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self)
        }
    }

    #[test]
    fn a_chain_that_leads_back_to_itself_is_cut() {
        assert_eq!(texts(&Endless), vec!["again"; LONGEST]);
    }
}
