//! Futures of wgpu's, which on native systems are ready at once.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The value of a future that is ready. `None` if it is not, which no wgpu of a native system does.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
