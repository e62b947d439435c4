//! Bytes of the host that cross the border with their owner.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use device_registry::HostBuffer;
use device_registry::backend::{BackendError, Completion, CompletionWatch};
use device_registry::plugin;
use device_registry::plugin::report_broken_rule;

use crate::abi::{self, Done, Failure, HostBytes, Object, Status, Watch};
use crate::load::numbered::Numbered;
use crate::load::report::{error, read};

/// The sources of queued writes that libraries have.
static SOURCES: Numbered<Arc<HostBuffer>> = Numbered::new();

/// The destinations of queued reads that libraries have.
static DESTINATIONS: Numbered<HostBuffer> = Numbered::new();

/// The queued reads that libraries have.
static READS: Numbered<Read> = Numbered::new();

/// A read that a library has.
struct Read {
    completion: Completion,
    destination: Object,
}

// SAFETY: the destination is a number, and not an address.
unsafe impl Send for Read {}

/// Reports a call that breaks a rule, as no caller gets an error for it. The call has no effect.
#[cold]
fn misused(what: &str) {
    report_broken_rule(&format!("a plugin {what}; the call has no effect"));
}

/// The source of a queued write, for a library, which owns the reference.
pub(crate) fn source(buffer: &Arc<HostBuffer>) -> HostBytes {
    let buffer = plugin::library_source(buffer);
    let start = buffer.as_ptr().cast_mut().cast();
    let len = buffer.len();
    let owner = SOURCES.put(buffer);
    HostBytes { start, len, owner, reserved: 0, release: Some(release_source) }
}

unsafe extern "C" fn release_source(owner: Object) {
    if SOURCES.take(owner).is_none() {
        misused("has released the source of a write twice");
    }
}

/// The destination and the end of a queued read, for a library, which owns both.
pub(crate) fn destination(mut buffer: HostBuffer, completion: Completion) -> (HostBytes, Done) {
    // A move of the buffer leaves its bytes in place.
    let start = buffer.as_mut_ptr().cast();
    let len = buffer.len();
    let owner = DESTINATIONS.put(buffer);
    let bytes = HostBytes { start, len, owner, reserved: 0, release: Some(release_destination) };
    let context = READS.put(Read { completion, destination: owner });
    (bytes, Done { context, reserved: 0, finish: Some(finish), watch: Some(watch) })
}

unsafe extern "C" fn release_destination(owner: Object) {
    if DESTINATIONS.take(owner).is_none() {
        misused("has released the destination of a read twice, or after it had given it back");
    }
}

unsafe extern "C" fn finish(
    context: Object,
    status: Status,
    bytes: *const HostBytes,
    failure: *const Failure,
) {
    let Some(Read { completion, destination }) = READS.take(context) else {
        return misused("has finished a read twice");
    };
    let result = match status {
        // The core finds out that it was dropped.
        abi::DROPPED => return drop(completion),
        // SAFETY: the library passes bytes that are valid, and gives them to this side.
        abi::OK if !bytes.is_null() => unsafe { take_back(bytes.read(), destination) },
        abi::OK => Err(BackendError::other("the plugin has finished a read without its bytes")),
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
/// The bytes are the destination of a read that `destination` was the owner of, or bytes that the library
/// gives to this side.
unsafe fn take_back(bytes: HostBytes, destination: Object) -> Result<HostBuffer, BackendError> {
    let own = bytes.release.is_some_and(|release| ptr::fn_addr_eq(release, release_destination as Release));
    if !own {
        // SAFETY: the caller promises that the library gives the bytes to this side.
        return unsafe { foreign(bytes) };
    }
    let wrong =
        |what: &str| Err(BackendError::other(format_args!("the plugin has finished a read with {what}")));
    if bytes.owner != destination {
        return wrong("the destination of another one");
    }
    let Some(buffer) = DESTINATIONS.take(destination) else {
        return wrong("its destination, which it has released");
    };
    let expected = buffer.len();
    let found = bytes.len;
    if expected != found {
        return wrong(&format!(
            "its destination and a wrong length: expected {expected} bytes, found {found}"
        ));
    }
    Ok(buffer)
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
        .ok_or_else(|| BackendError::other("the plugin has returned bytes without an address"))?;
    if bytes.len > isize::MAX as usize {
        return Err(BackendError::other("the plugin has returned more bytes than an address space has"));
    }
    // SAFETY: the caller promises that the bytes are initialised and no other code accesses them until the
    // drop of the owner releases them.
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
    let found = READS.read(context, |read| read.completion.watch());
    if found.is_none() {
        misused("has called `watch` of a read that it has finished");
    }
    let watch = WATCHES.put(found);
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

/// The watches that libraries have. One of a read that was finished before has nothing to watch.
static WATCHES: Numbered<Option<CompletionWatch>> = Numbered::new();

unsafe extern "C" fn is_finished(watch: Object) -> u32 {
    let is_finished =
        |watch: &Option<CompletionWatch>| watch.as_ref().is_none_or(CompletionWatch::is_finished).into();
    WATCHES.read(watch, is_finished).unwrap_or_else(|| {
        misused("has called `is_finished` of a watch that it has released");
        1
    })
}

unsafe extern "C" fn release_watch(watch: Object) {
    if WATCHES.take(watch).is_none() {
        misused("has released a watch twice");
    }
}
