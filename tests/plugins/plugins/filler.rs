//! The backend `openreg`, and two entries of a group that only the tests have. It uses the public API alone.

use std::sync::atomic::{AtomicUsize, Ordering};

use device_openreg::OpenRegMemory;
use device_plugin::interface::{
    ExportedEntry, Object, Report, Setting, Span, Status, Table, guard, launch, put,
};
use device_registry::backend::{BackendError, LoadFailure};

mod filler_table;

use filler_table::{FILLER_GROUP, FillerTable};

device_plugin::export!(device_openreg::OPENREG; Entry("filler"), Entry("broken"));

struct Entry(&'static str);

impl ExportedEntry for Entry {
    fn group(&self) -> &'static str {
        FILLER_GROUP
    }

    fn name(&self) -> &'static str {
        self.0
    }

    fn options(&self) -> Vec<(&'static str, &'static str)> {
        vec![("byte", "what it fills with")]
    }

    unsafe fn load(&self, options: &[Setting<'_>], table: Object) -> Result<(), LoadFailure> {
        if self.0 == "broken" {
            return Err(LoadFailure::unavailable("there is no filler"));
        }
        let byte = options.iter().find(|(name, ..)| *name == "byte").map_or("0", |(_, value, _)| value);
        let byte: u8 =
            byte.parse().map_err(|error| LoadFailure::new("`byte` is wrong").with_source(error))?;
        let filler = Box::into_raw(Box::new(byte)).cast();
        let filled = FillerTable { filler, fill: Some(fill), dropped: Some(dropped), ..FillerTable::ZEROED };
        // SAFETY: the caller promises that it is the place for a table of this group.
        unsafe { put(table.cast(), filled) }
            .map_err(|error| LoadFailure::new(format_args!("the place for the filler {error}")))
    }
}

static DROPPED: AtomicUsize = AtomicUsize::new(0);

struct Kept;

impl Drop for Kept {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

unsafe extern "C" fn fill(
    filler: Object,
    device: Object,
    stream: Object,
    span: *const Span,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a filler, a device and a stream of this library, a span of its memory, and a
    // valid report.
    unsafe {
        guard(report, || {
            let byte = *filler.cast::<u8>();
            launch(device, stream, &[*span], |launch| {
                launch.native_device().value(|| Ok(Kept))?;
                let span = launch.spans()[0].as_ref().ok_or_else(|| BackendError::invalid("no bytes"))?;
                span.memory_as::<OpenRegMemory>()?.bytes()?.write(span.range())?.fill(byte);
                Ok(())
            })
        })
    }
}

unsafe extern "C" fn dropped(_filler: Object) -> usize {
    DROPPED.load(Ordering::Relaxed)
}
