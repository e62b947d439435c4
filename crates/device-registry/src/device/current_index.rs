//! The index of each backend's current device on this thread, to which a device without an index resolves.

use std::cell::RefCell;

use entry_points::Entry;

use crate::backend::Backend;

thread_local! {
    /// Few backends have a current device other than 0, so a list is enough.
    static INDICES: RefCell<Vec<(Entry<dyn Backend>, u16)>> = const { RefCell::new(Vec::new()) };
}

/// The index of the backend's current device on this thread.
pub(crate) fn get(backend: Entry<dyn Backend>) -> u16 {
    // While a thread ends, the list may be destroyed: the index is then 0, as on a new thread.
    INDICES
        .try_with(|indices| {
            indices.borrow().iter().find(|(entry, _)| *entry == backend).map(|&(_, index)| index)
        })
        .ok()
        .flatten()
        .unwrap_or(0)
}

/// Sets the index of the backend's current device on this thread.
pub(crate) fn set(backend: Entry<dyn Backend>, index: u16) {
    let _ = INDICES.try_with(|indices| {
        let mut indices = indices.borrow_mut();
        match indices.iter_mut().find(|(entry, _)| *entry == backend) {
            Some((_, current)) => *current = index,
            None => indices.push((backend, index)),
        }
    });
}
