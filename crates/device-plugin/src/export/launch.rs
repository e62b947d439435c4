//! Launches of the program, on objects of this library.

use device_registry::backend::{BackendError, Launch, Span};

use crate::abi::{self, Object};
use crate::export::report::guard_quietly;
use crate::export::{device, stream};

/// Runs a kernel on a device and perhaps a queue of this library, which is null where there is none. What the
/// kernel keeps stays until the work of the queue is done.
///
/// # Errors
///
/// The kernel's, and an error for a span that does not lie in its memory.
///
/// # Safety
///
/// The objects are of this library, open, and not destroyed, and the program keeps what it guarantees to a
/// driver.
pub unsafe fn launch(
    device: Object,
    stream: Object,
    spans: &[abi::Span],
    kernel: impl FnOnce(&Launch<'_>) -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    let owned = |of: &abi::Span| {
        // SAFETY: the caller promises that the memory is of this library and not freed. The copy that is
        // counted replaces the span that is not, which is never dropped.
        unsafe { device::span(of) }.map(|span| Some(Span::clone(&span)))
    };
    let spans = spans.iter().map(owned).collect::<Result<Vec<_>, _>>()?;
    // SAFETY: the caller promises that the objects are of this library, and alive.
    let device = unsafe { device::opened(device) };
    if stream.is_null() {
        // Its work is done when the kernel returns.
        let (outcome, kept) = device.launch(None, &spans, kernel);
        guard_quietly("a panic while dropping what a kernel kept", || drop(kept));
        return outcome;
    }
    // SAFETY: the caller promises that the stream is of this library and not destroyed.
    unsafe { stream::launch(stream, |driver| device.launch(Some(driver), &spans, kernel)) }
}
