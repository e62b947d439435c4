//! Bytes of the host that cross the border with their owner.

use std::ptr::NonNull;
use std::sync::Arc;

use device_registry::HostBuffer;
use device_registry::backend::BackendError;
use device_registry::plugin;

use crate::abi::{HostBytes, Object};
use crate::export::report::guard_quietly;

/// Bytes that the program owns, released on drop.
pub(crate) struct ProgramBytes(HostBytes);

// SAFETY: any thread may release the bytes.
unsafe impl Send for ProgramBytes {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl Sync for ProgramBytes {}

impl Drop for ProgramBytes {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: this side owns the bytes, and no longer uses them.
            unsafe { release(self.0.owner) }
        }
    }
}

/// The bytes that a queued write reads.
///
/// # Safety
///
/// The pointer is valid, and this side owns the bytes from now on.
pub(crate) unsafe fn source(bytes: *const HostBytes) -> Result<Arc<HostBuffer>, BackendError> {
    // SAFETY: the caller promises that the pointer is valid.
    let owner = ProgramBytes(unsafe { bytes.read() });
    let start = start(&owner)?;
    let len = owner.0.len;
    // SAFETY: the program promises that the bytes are there and do not change until they are released, which
    // the drop of the owner does.
    Ok(Arc::new(unsafe { HostBuffer::from_shared_parts(start, len, owner) }))
}

/// The bytes that a queued read writes to.
///
/// # Safety
///
/// The pointer is valid, and this side owns the bytes from now on.
pub(crate) unsafe fn destination(bytes: *const HostBytes) -> Result<HostBuffer, BackendError> {
    // SAFETY: the caller promises that the pointer is valid.
    let owner = ProgramBytes(unsafe { bytes.read() });
    let start = start(&owner)?;
    let len = owner.0.len;
    // SAFETY: the program promises that the bytes are initialised and that only this side accesses them until
    // they are released, which the drop of the owner does.
    Ok(unsafe { HostBuffer::from_raw_parts(start, len, owner) })
}

fn start(owner: &ProgramBytes) -> Result<NonNull<u8>, BackendError> {
    NonNull::new(owner.0.start.cast())
        .ok_or_else(|| BackendError::invalid("the program's bytes have no address"))
}

/// A buffer for the program: its own bytes if it is made of them, and otherwise bytes of this library, which
/// the program releases.
pub(crate) fn give(buffer: HostBuffer) -> HostBytes {
    match plugin::into_owner::<ProgramBytes>(buffer) {
        Ok(owner) => {
            let owner = std::mem::ManuallyDrop::new(owner);
            owner.0
        }
        Err(buffer) => {
            let mut buffer = Box::new(buffer);
            let start = buffer.as_mut_ptr().cast();
            let len = buffer.len();
            HostBytes { start, len, owner: Box::into_raw(buffer).cast(), reserved: 0, release: Some(release) }
        }
    }
}

unsafe extern "C" fn release(owner: Object) {
    guard_quietly("a panic while freeing host memory", || {
        // SAFETY: `give` made the owner of a box, and the program releases it once.
        drop(unsafe { Box::from_raw(owner.cast::<HostBuffer>()) })
    });
}
