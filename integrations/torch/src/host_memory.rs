//! Memory of the host that devices copy faster: "pinned".

use std::collections::BTreeMap;
use std::sync::Arc;

use device_registry::{BackendErrorKind, DeviceError, HostBuffer};
use parking_lot::Mutex;

use crate::devices::is_forked;
use crate::failure::Failure;
use crate::memory::registered;

/// All of it, by its first address.
static LIVE: Mutex<BTreeMap<usize, Arc<HostBuffer>>> = Mutex::new(BTreeMap::new());

/// Allocates memory that is pinned for the device; ordinary memory, where the device has no other.
pub(crate) fn allocate(device: usize, len: usize) -> Result<usize, Failure> {
    let registered = registered(device)?;
    let mut memory = match registered.allocate_host(len) {
        Err(DeviceError::Call { error, .. }) if error.kind() == BackendErrorKind::Unsupported => {
            HostBuffer::zeroed(len).map_err(Failure::of_backend)?
        }
        memory => memory?,
    };
    let address = memory.as_mut_ptr() as usize;
    LIVE.lock().insert(address, Arc::new(memory));
    Ok(address)
}

/// Frees it, when no queued copy reads it any more.
pub(crate) fn free(address: usize) {
    if !is_forked() {
        let memory = LIVE.lock().remove(&address);
        drop(memory);
    }
}

/// Whether an address is within such memory.
pub(crate) fn contains(address: usize) -> bool {
    !is_forked() && find(address).is_some()
}

/// The allocation that has all of these bytes, if one has.
pub(crate) fn holder(address: usize, len: usize) -> Option<Arc<HostBuffer>> {
    if len == 0 || is_forked() {
        return None;
    }
    let (start, memory) = find(address)?;
    len.checked_add(address - start).filter(|&end| end <= memory.len()).map(|_| memory)
}

/// The allocation that an address is in, and where it begins.
fn find(address: usize) -> Option<(usize, Arc<HostBuffer>)> {
    let live = LIVE.lock();
    let (&start, memory) = live.range(..=address).next_back()?;
    (address - start < memory.len().max(1)).then(|| (start, Arc::clone(memory)))
}
