//! An error with its causes, as one value that prints.

use std::error::Error;
use std::fmt;

/// Enough for any honest chain; a `source` that leads back to itself has no end.
const LONGEST: usize = 16;

/// An error and the errors that caused it, printed a line each.
///
/// `Display` of most errors is their own message only: the causes are behind [`Error::source`]. A program
/// that ends with an error prints both.
///
/// ```
/// use entry_points::ErrorChain;
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("no configuration")]
/// struct NoConfiguration(#[source] std::io::Error);
///
/// let error = NoConfiguration(std::io::Error::other("disk on fire"));
/// assert_eq!(ErrorChain::new(&error).to_string(), "no configuration\ncaused by: disk on fire");
/// ```
#[derive(Clone, Copy)]
pub struct ErrorChain<'a>(&'a (dyn Error + 'static));

impl<'a> ErrorChain<'a> {
    /// The chain that begins with `error`. At most 16 causes are printed.
    #[must_use]
    pub fn new(error: &'a (dyn Error + 'static)) -> Self {
        Self(error)
    }
}

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut causes = std::iter::successors(self.0.source(), |&error| error.source()).take(LONGEST);
        causes.try_for_each(|cause| write!(f, "\ncaused by: {cause}"))
    }
}

/// The same text as `Display`, for a `main` or a test that returns the chain.
impl fmt::Debug for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
        assert_eq!(ErrorChain::new(&Endless).to_string().lines().count(), 1 + LONGEST);
    }
}
