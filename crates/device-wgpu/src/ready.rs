//! Futures of wgpu, which are ready at once on native systems.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The value of a future that is ready. `None` if it is not, which wgpu never returns on native systems.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
