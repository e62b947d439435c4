//! Streams with work to do: busy with copies, or held back by a host call.

use std::sync::mpsc;

use device_registry::{Buffer, Stream};

use crate::context::Context;
use crate::failure::Failure;

/// Enqueues work that takes a while: copies back and forth between two buffers with the same bytes.
pub(crate) fn keep_busy(stream: &Stream, pair: &[Buffer; 2], times: usize) -> Result<(), Failure> {
    for index in 0..times {
        let from = &pair[index % 2];
        let to = &pair[(index + 1) % 2];
        stream.copy(from, to)?;
    }
    Ok(())
}

/// Two buffers for [`keep_busy`].
pub(crate) fn busy_pair(context: &Context) -> Result<[Buffer; 2], Failure> {
    const LEN: usize = 1 << 20;
    Ok([context.filled(&[7; LEN])?, context.filled(&[7; LEN])?])
}

/// Blocks a stream with a host call, until the returned sender is dropped.
pub(crate) fn hold_back(stream: &Stream) -> Result<mpsc::Sender<()>, Failure> {
    let (release, released) = mpsc::channel::<()>();
    stream.host_call(move || {
        let _ = released.recv();
    })?;
    Ok(release)
}
