//! Bytes of the host that cross the border with their owner.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use device_registry::HostBuffer;
use device_registry::backend::{BackendError, Completion, CompletionWatch};

use crate::abi::{self, Done, Failure, HostBytes, Object, Status, Watch};
use crate::load::report::{error, read};

/// The source of a queued write, for a library, which owns the reference.
pub(crate) fn source(buffer: &Arc<HostBuffer>) -> HostBytes {
    let buffer = Arc::clone(buffer);
    let (start, len) = (buffer.as_ptr().cast_mut().cast(), buffer.len());
    HostBytes {
        start,
        len,
        owner: Arc::into_raw(buffer).cast_mut().cast(),
        reserved: 0,
        release: Some(release_source),
    }
}

unsafe extern "C" fn release_source(owner: Object) {
    // SAFETY: `source` has made the owner of a reference, and the library releases it once. A drop of bytes does not unwind.
    drop(unsafe { Arc::from_raw(owner.cast::<HostBuffer>()) });
}

/// The destination and the end of a queued read, for a library, which owns both.
pub(crate) fn destination(buffer: HostBuffer, completion: Completion) -> (HostBytes, Done) {
    let mut buffer = Box::new(buffer);
    let (start, len) = (buffer.as_mut_ptr().cast(), buffer.len());
    let owner: Object = Box::into_raw(buffer).cast();
    let bytes = HostBytes { start, len, owner, reserved: 0, release: Some(release_destination) };
    let context = Box::into_raw(Box::new(Read { completion, destination: owner })).cast();
    (bytes, Done { context, reserved: 0, finish: Some(finish), watch: Some(watch) })
}

unsafe extern "C" fn release_destination(owner: Object) {
    // SAFETY: `destination` has made the owner of a box, and the library releases it once.
    drop(unsafe { Box::from_raw(owner.cast::<HostBuffer>()) });
}

/// A read that a library has.
struct Read {
    completion: Completion,
    destination: Object,
}

unsafe extern "C" fn finish(
    context: Object,
    status: Status,
    bytes: *const HostBytes,
    failure: *const Failure,
) {
    // SAFETY: `destination` has made the context of a box, and the library finishes the read once.
    let Read { completion, destination } = *unsafe { Box::from_raw(context.cast::<Read>()) };
    let result = match status {
        // The core finds out that it was dropped.
        abi::DROPPED => return drop(completion),
        // SAFETY: the library passes bytes that are valid, and gives them to this side.
        abi::OK if !bytes.is_null() => unsafe { take_back(bytes.read(), destination) },
        abi::OK => Err(BackendError::other("the plug-in has finished a read without its bytes")),
        _ => {
            // SAFETY: the library passes a failure that is null or valid during the call.
            let reported = (!failure.is_null()).then(|| unsafe { read(failure) });
            Err(error(status, reported, "read"))
        }
    };
    completion.finish(result);
}

/// The destination of a read, or other bytes of the library.
///
/// # Safety
///
/// The bytes are the destination of a read that `destination` was the owner of, or bytes that the library gives to this side.
unsafe fn take_back(bytes: HostBytes, destination: Object) -> Result<HostBuffer, BackendError> {
    // Other bytes may have the same owner, once the library has released the destination, but no function of this program.
    let own = bytes.release.is_some_and(|release| ptr::fn_addr_eq(release, release_destination as Release));
    if own && bytes.owner == destination {
        // SAFETY: `destination` is of a box, which the library has given back and not released.
        return Ok(*unsafe { Box::from_raw(destination.cast::<HostBuffer>()) });
    }
    // SAFETY: the caller promises that the library gives the bytes to this side.
    unsafe { foreign(bytes) }
}

type Release = unsafe extern "C" fn(Object);

/// A buffer of bytes that a library owns.
///
/// # Safety
///
/// The bytes are initialised, and only this side accesses them until it releases them.
pub(crate) unsafe fn foreign(bytes: HostBytes) -> Result<HostBuffer, BackendError> {
    let owner = PluginBytes(bytes);
    let start = NonNull::new(bytes.start.cast())
        .ok_or_else(|| BackendError::other("the plug-in has returned bytes without an address"))?;
    if bytes.len > isize::MAX as usize {
        return Err(BackendError::other("the plug-in has returned more bytes than an address space has"));
    }
    // SAFETY: the caller promises that the bytes are initialised and no other code accesses them until the drop of the owner
    // releases them.
    Ok(unsafe { HostBuffer::from_raw_parts(start, bytes.len, owner) })
}

/// Bytes that a library owns, released on drop.
struct PluginBytes(HostBytes);

// SAFETY: any thread may release the bytes.
unsafe impl Send for PluginBytes {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl Sync for PluginBytes {}

impl Drop for PluginBytes {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: this side owns the bytes, and no longer uses them.
            unsafe { release(self.0.owner) }
        }
    }
}

unsafe extern "C" fn watch(context: Object, place: *mut Watch) {
    // SAFETY: the context is of a box, and the library calls this before it finishes the read.
    let watch = unsafe { &*context.cast::<Read>() }.completion.watch();
    let watch = Box::into_raw(Box::new(watch)).cast();
    // SAFETY: the library passes a place that is valid.
    unsafe {
        place.write(Watch {
            watch,
            reserved: 0,
            is_finished: Some(is_finished),
            release: Some(release_watch),
        });
    }
}

unsafe extern "C" fn is_finished(watch: Object) -> u32 {
    // SAFETY: `watch` has made it of a box, and the library has not released it.
    unsafe { &*watch.cast::<CompletionWatch>() }.is_finished().into()
}

unsafe extern "C" fn release_watch(watch: Object) {
    // SAFETY: `watch` has made it of a box, and the library releases it once.
    drop(unsafe { Box::from_raw(watch.cast::<CompletionWatch>()) });
}
