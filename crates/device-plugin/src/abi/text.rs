//! Text of the interface.

use std::borrow::Cow;
use std::ptr;
use std::slice;

use crate::abi::Str;

impl Str {
    /// A text that is valid for as long as the argument.
    pub(crate) const fn of(text: &str) -> Self {
        Self { start: text.as_ptr().cast(), len: text.len() }
    }

    /// No text.
    pub(crate) const fn empty() -> Self {
        Self { start: ptr::null(), len: 0 }
    }

    /// The text, in which invalid UTF-8 is replaced.
    ///
    /// # Safety
    ///
    /// `len` bytes at `start` are valid for reads, for as long as the result is used.
    pub(crate) unsafe fn text<'a>(self) -> Cow<'a, str> {
        if self.start.is_null() || self.len == 0 {
            return Cow::Borrowed("");
        }
        // SAFETY: the caller promises it.
        String::from_utf8_lossy(unsafe { slice::from_raw_parts(self.start.cast(), self.len) })
    }
}
