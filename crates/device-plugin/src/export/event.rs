//! Events of a queue.

use device_registry::backend::EventDriver;

use crate::abi::{EventApi, Object, Report, Status};
use crate::export::report::{guard, guard_quietly};

pub(crate) static EVENT_API: EventApi = EventApi {
    destroy: Some(destroy),
    query: Some(query),
    is_over: Some(is_over),
    synchronize: Some(synchronize),
    elapsed_since: Some(elapsed_since),
    ..EventApi::zeroed()
};

pub(crate) fn into_object(event: Box<dyn EventDriver>) -> Object {
    Box::into_raw(Box::new(event)).cast()
}

/// # Safety
///
/// The object is from [`into_object`], and was not destroyed.
pub(crate) unsafe fn event<'a>(event: Object) -> &'a dyn EventDriver {
    // SAFETY: the caller promises that it is a box of this type.
    unsafe { &**event.cast::<Box<dyn EventDriver>>() }
}

unsafe extern "C" fn destroy(object: Object) {
    guard_quietly("a panic while freeing an event", || {
        // SAFETY: the object is from `into_object`, and the program destroys it once.
        drop(unsafe { Box::from_raw(object.cast::<Box<dyn EventDriver>>()) })
    });
}

unsafe extern "C" fn query(object: Object, done: *mut u32, report: *const Report) -> Status {
    // SAFETY: the program passes an event of this library, a place and a report that are valid.
    unsafe {
        guard(report, || {
            done.write(event(object).query()?.into());
            Ok(())
        })
    }
}

unsafe extern "C" fn is_over(object: Object, over: *mut u32, report: *const Report) -> Status {
    // SAFETY: the program passes an event of this library, a place and a report that are valid.
    unsafe {
        guard(report, || {
            over.write(event(object).is_over()?.into());
            Ok(())
        })
    }
}

unsafe extern "C" fn synchronize(object: Object, report: *const Report) -> Status {
    // SAFETY: the program passes an event of this library and a valid report.
    unsafe { guard(report, || event(object).synchronize()) }
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
