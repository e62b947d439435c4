//! The stream that a thread has chosen for a device, and the waits of blocking calls for it.

use std::cell::RefCell;
use std::sync::Arc;

use crate::error::DeviceError;
use crate::runtime::activity;
use crate::runtime::deadline::Deadline;
use crate::runtime::open_device::OpenDevice;
use crate::runtime::queue::QueueHandle;

thread_local! {
    /// At most one stream for each device, and none where the default stream is current. A short list is fast
    /// enough.
    static CHOSEN: RefCell<Vec<Arc<QueueHandle>>> = const { RefCell::new(Vec::new()) };
}

fn is_of(device: &OpenDevice) -> impl Fn(&Arc<QueueHandle>) -> bool {
    move |stream| std::ptr::eq(stream.queue().device(), device)
}

/// The chosen stream of a device, if there is one. While a thread ends, its list may be destroyed: then there
/// is none.
pub(crate) fn of(device: &OpenDevice) -> Option<Arc<QueueHandle>> {
    CHOSEN.try_with(|chosen| chosen.borrow().iter().find(|stream| is_of(device)(stream)).cloned()).ok()?
}

/// The stream that a thread's new memory of this length is for: the one that it has chosen, on a device that
/// uses such memory again.
#[inline]
pub(crate) fn for_memory(device: &OpenDevice, len: usize) -> Option<Arc<QueueHandle>> {
    if device.keeps_memory(len) { of(device) } else { None }
}

/// Sets or clears the chosen stream of a device. Returns the previous one.
pub(crate) fn choose(device: &OpenDevice, stream: Option<Arc<QueueHandle>>) -> Option<Arc<QueueHandle>> {
    let replaced = CHOSEN.try_with(|chosen| {
        let mut chosen = chosen.borrow_mut();
        let before = chosen.iter().position(is_of(device)).map(|place| chosen.swap_remove(place));
        chosen.extend(stream);
        before
    });
    replaced.ok().flatten()
}

/// Waits for the current stream, so that a blocking call runs after the work that was enqueued there.
pub(crate) fn settle(device: &OpenDevice) -> Result<(), DeviceError> {
    let current = of(device).or_else(|| QueueHandle::default_of(device));
    let Some(stream) = current else { return Ok(()) };
    let queue = stream.queue();
    activity::call(|| queue.wait(), || queue.synchronize())
}

/// Like [`settle`], until the deadline.
pub(crate) fn settle_until(device: &OpenDevice, deadline: &Deadline) -> Result<(), DeviceError> {
    let current = of(device).or_else(|| QueueHandle::default_of(device));
    let Some(stream) = current else { return Ok(()) };
    let queue = stream.queue();
    activity::call(|| queue.wait(), || queue.synchronize_until(deadline))
}
