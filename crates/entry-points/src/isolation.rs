//! Calls into a plugin's code, from which no panic escapes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::message::panic_message;

/// Calls a plugin's code. A panic in it becomes an error, so that a broken plugin harms only the call.
///
/// The group isolates loading only, so a framework isolates its own calls into loaded plugins with this
/// function. The panic hook runs as for any panic. With `panic = "abort"` the program ends.
///
/// After a panic, values that `call` has captured by mutable reference may be half changed: discard them, or
/// capture none.
///
/// ```
/// use entry_points::isolate;
///
/// assert_eq!(isolate(|| 2 + 2).unwrap(), 4);
/// let error = isolate(|| -> u8 { panic!("no such codec") }).unwrap_err();
/// assert_eq!(error.to_string(), "it panicked: no such codec");
/// ```
///
/// # Errors
///
/// [`Panicked`], with the text of the panic.
#[inline]
pub fn isolate<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(call)).map_err(Panicked::new)
}

/// A plugin's code has panicked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it panicked: {message}")]
pub struct Panicked {
    message: String,
}

impl Panicked {
    #[cold]
    fn new(payload: Box<dyn Any + Send>) -> Self {
        Self { message: panic_message(payload) }
    }

    /// The text of the panic.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}
