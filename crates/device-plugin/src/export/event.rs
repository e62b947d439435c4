//! Events of a queue.

use std::sync::Arc;

use device_registry::backend::EventDriver;

use crate::abi::{EventApi, Object, Report, Status, Table};
use crate::export::report::{guard, guard_quietly};
use crate::export::sources::Sources;

pub(crate) static EVENT_API: EventApi = EventApi {
    destroy: Some(destroy),
    query: Some(query),
    is_over: Some(is_over),
    synchronize: Some(synchronize),
    elapsed_since: Some(elapsed_since),
    ..EventApi::ZEROED
};

/// An event, as the program has it.
struct Recorded {
    event: Box<dyn EventDriver>,
    /// What the work before it may use is below this number.
    sources: Arc<Sources>,
    reached: u64,
}

pub(crate) fn into_object(event: Box<dyn EventDriver>, sources: &Arc<Sources>, reached: u64) -> Object {
    Box::into_raw(Box::new(Recorded { event, sources: Arc::clone(sources), reached })).cast()
}

/// # Safety
///
/// The object is from [`into_object`], and was not destroyed.
unsafe fn recorded<'a>(event: Object) -> &'a Recorded {
    // SAFETY: the caller promises that it is a box of this type.
    unsafe { &*event.cast::<Recorded>() }
}

/// # Safety
///
/// The object is from [`into_object`], and was not destroyed.
pub(crate) unsafe fn event<'a>(event: Object) -> &'a dyn EventDriver {
    // SAFETY: the caller promises the same.
    unsafe { &*recorded(event).event }
}

impl Recorded {
    /// Releases what the work before it has used, if the event is over.
    fn release_if(&self, is_over: bool) -> u32 {
        if is_over {
            self.sources.release(self.reached);
        }
        is_over.into()
    }
}

unsafe extern "C" fn destroy(object: Object) {
    guard_quietly("a panic while freeing an event", || {
        // SAFETY: the object is from `into_object`, and the program destroys it once.
        drop(unsafe { Box::from_raw(object.cast::<Recorded>()) })
    });
}

unsafe extern "C" fn query(object: Object, done: *mut u32, report: *const Report) -> Status {
    // SAFETY: the program passes an event of this library, a place and a report that are valid.
    unsafe {
        guard(report, || {
            let recorded = recorded(object);
            done.write(recorded.release_if(recorded.event.query()?));
            Ok(())
        })
    }
}

unsafe extern "C" fn is_over(object: Object, over: *mut u32, report: *const Report) -> Status {
    // SAFETY: the program passes an event of this library, a place and a report that are valid.
    unsafe {
        guard(report, || {
            let recorded = recorded(object);
            over.write(recorded.release_if(recorded.event.is_over()?));
            Ok(())
        })
    }
}

unsafe extern "C" fn synchronize(object: Object, report: *const Report) -> Status {
    // SAFETY: the program passes an event of this library and a valid report.
    unsafe {
        guard(report, || {
            let recorded = recorded(object);
            recorded.event.synchronize()?;
            recorded.release_if(true);
            Ok(())
        })
    }
}

unsafe extern "C" fn elapsed_since(
    object: Object,
    start: Object,
    nanoseconds: *mut u64,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes two events of this library, a place and a report that are valid.
    unsafe {
        guard(report, || {
            let elapsed = event(object).elapsed_since(event(start))?;
            nanoseconds.write(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX));
            Ok(())
        })
    }
}
