//! The tables of functions that ONNX Runtime gives, and what every call through them needs.

use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use ort_sys::{OrtApi, OrtApiBase, OrtErrorCode, OrtKeyValuePairs, OrtLogger, OrtLoggingLevel, OrtStatusPtr};

use crate::abi::{EpApi, VERSION};
use crate::failure::Failure;

/// Both tables of a runtime. A process may have two runtimes, whose tables differ: Python's module has one of
/// its own.
#[derive(Clone, Copy)]
pub(crate) struct Api {
    pub(crate) ort: &'static OrtApi,
    pub(crate) ep: &'static EpApi,
}

impl Api {
    /// The tables of a runtime. The error is a status of the runtime, which says what it lacks.
    ///
    /// # Safety
    ///
    /// `base` is of a runtime that stays in the process.
    pub(crate) unsafe fn of(base: *const OrtApiBase) -> Result<Self, OrtStatusPtr> {
        // SAFETY: see above.
        let base = unsafe { &*base };
        // SAFETY: the function takes any number.
        let ort = unsafe { (base.GetApi)(VERSION) };
        if ort.is_null() {
            // SAFETY: the version is a text. Each runtime has the first table, which has `CreateStatus`.
            unsafe {
                let runtime = CStr::from_ptr((base.GetVersionString)()).to_string_lossy();
                let message = format!("ONNX Runtime {runtime} is too old: expected 1.{VERSION} or newer");
                let first = (base.GetApi)(1);
                let message = CString::new(message).unwrap_or_default();
                return Err(((*first).CreateStatus)(OrtErrorCode::ORT_FAIL, message.as_ptr()));
            }
        }
        // SAFETY: a table of this version, which is never changed or freed, and its table for providers.
        unsafe { Ok(Self { ort: &*ort, ep: &*((*ort).GetEpApi)().cast::<EpApi>() }) }
    }

    /// The status of a result.
    pub(crate) fn status(self, result: Result<(), Failure>) -> OrtStatusPtr {
        match result {
            Ok(()) => OrtStatusPtr(ptr::null_mut()),
            Err(failure) => {
                let message = text(failure.message());
                // SAFETY: the message is a text, which the runtime copies.
                unsafe { (self.ort.CreateStatus)(OrtErrorCode::ORT_FAIL, message.as_ptr()) }
            }
        }
    }

    /// The status of a function that may panic.
    pub(crate) fn guard(self, function: impl FnOnce() -> Result<(), Failure>) -> OrtStatusPtr {
        self.status(caught(function))
    }

    /// The result of a call.
    pub(crate) fn check(self, status: OrtStatusPtr) -> Result<(), Failure> {
        if status.0.is_null() {
            return Ok(());
        }
        // SAFETY: the status is the caller's. Its message lives as long as it does.
        unsafe {
            let message = CStr::from_ptr((self.ort.GetErrorMessage)(status.0)).to_string_lossy().into_owned();
            (self.ort.ReleaseStatus)(status.0);
            Err(Failure::new(message))
        }
    }

    /// Pairs of texts, for the duration of a call.
    pub(crate) fn pairs(self, pairs: &[(&str, String)]) -> Pairs {
        let mut created = ptr::null_mut();
        // SAFETY: it returns new pairs, to which texts are copied.
        unsafe {
            (self.ort.CreateKeyValuePairs)(&raw mut created);
            for (key, value) in pairs {
                (self.ort.AddKeyValuePair)(created, text(key).as_ptr(), text(value).as_ptr());
            }
        }
        Pairs { api: self, pairs: created }
    }

    /// Writes a line to a log of the runtime.
    ///
    /// # Safety
    ///
    /// `logger` is alive.
    pub(crate) unsafe fn warn(self, logger: *const OrtLogger, message: &str) {
        #[cfg(not(windows))]
        let file = c"device-ort".as_ptr();
        #[cfg(windows)]
        let file = [0_u16].as_ptr();
        let level = OrtLoggingLevel::ORT_LOGGING_LEVEL_WARNING;
        // SAFETY: the texts are copied.
        let status = unsafe {
            (self.ort.Logger_LogMessage)(
                logger,
                level,
                text(message).as_ptr(),
                file,
                0,
                c"device_ort".as_ptr(),
            )
        };
        // A failure of the log has no place to go.
        let _ = self.check(status);
    }
}

/// Pairs of texts, which are released with it.
pub(crate) struct Pairs {
    api: Api,
    pairs: *mut OrtKeyValuePairs,
}

impl Pairs {
    pub(crate) fn as_ptr(&self) -> *const OrtKeyValuePairs {
        self.pairs
    }
}

impl Drop for Pairs {
    fn drop(&mut self) {
        // SAFETY: they are its own.
        unsafe { (self.api.ort.ReleaseKeyValuePairs)(self.pairs) };
    }
}

/// The result of a function that may panic.
pub(crate) fn caught<T>(function: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(function)).unwrap_or_else(|panic| {
        Err(Failure::new(format_args!("a defect of device-ort: it panicked: {}", panic_message(panic))))
    })
}

/// What a panic says.
fn panic_message(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// A text for C, up to its first NUL.
pub(crate) fn text(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// A text of the runtime.
///
/// # Safety
///
/// The pointer is null or a text that lives as long as the result is used.
pub(crate) unsafe fn borrowed<'a>(text: *const c_char) -> &'a str {
    if text.is_null() {
        return "";
    }
    // SAFETY: see above.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default()
}
