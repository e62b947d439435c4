//! Memory of the host that devices copy faster: "pinned".

use std::collections::BTreeMap;

use device_registry::{BackendErrorKind, DeviceError, HostBuffer};
use parking_lot::Mutex;

use crate::devices::is_forked;
use crate::failure::Failure;
use crate::memory::registered;

/// All of it, by its first address.
static LIVE: Mutex<BTreeMap<usize, HostBuffer>> = Mutex::new(BTreeMap::new());

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
    LIVE.lock().insert(address, memory);
    Ok(address)
}

/// Frees it.
pub(crate) fn free(address: usize) {
    if !is_forked() {
        let memory = LIVE.lock().remove(&address);
        drop(memory);
    }
}

/// Whether an address is within such memory.
pub(crate) fn contains(address: usize) -> bool {
    if is_forked() {
        return false;
    }
    let live = LIVE.lock();
    let before = live.range(..=address).next_back();
    before.is_some_and(|(start, memory)| address - start < memory.len().max(1))
}
