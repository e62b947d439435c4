//! Text of the interface.

use std::borrow::Cow;
use std::fmt;
use std::ptr;
use std::slice;

use crate::abi::Str;

impl Str {
    /// A text that is valid for as long as the argument.
    pub const fn of(text: &str) -> Self {
        Self { start: text.as_ptr().cast(), len: text.len() }
    }

    /// The beginning of a text, as long as the interface allows and valid for as long as the argument.
    pub fn cut(text: &str) -> Self {
        Self::of(&text[..text.floor_char_boundary(LONGEST_TEXT)])
    }

    /// No text.
    pub const fn empty() -> Self {
        Self { start: ptr::null(), len: 0 }
    }

    /// The text, in which invalid UTF-8 is replaced.
    ///
    /// # Errors
    ///
    /// If it is longer than the interface allows. Then no byte of it is read.
    ///
    /// # Safety
    ///
    /// `len` bytes at `start` are valid for reads, for as long as the result is used, if the length is one
    /// that the interface allows.
    pub unsafe fn text<'a>(self) -> Result<Cow<'a, str>, TooLong> {
        if self.start.is_null() || self.len == 0 {
            return Ok(Cow::Borrowed(""));
        }
        if self.len > LONGEST_TEXT {
            return Err(TooLong(self.len));
        }
        // SAFETY: the caller promises it.
        Ok(String::from_utf8_lossy(unsafe { slice::from_raw_parts(self.start.cast(), self.len) }))
    }

    /// The text for people, as [`shown`](Self::shown), but with its line breaks and tabs, for logs and
    /// panics.
    ///
    /// # Safety
    ///
    /// The same as for [`text`](Self::text).
    pub(crate) unsafe fn shown_lines(self) -> String {
        // SAFETY: the caller promises it.
        match unsafe { self.text() } {
            Ok(text) => escaped(text, |c| c.is_control() && c != '\n' && c != '\t'),
            Err(too_long) => too_long.to_string(),
        }
    }

    /// The text for people, on one line: control characters are escaped, since terminals obey them. For a
    /// text that is too long, a message that says so.
    ///
    /// # Safety
    ///
    /// The same as for [`text`](Self::text).
    pub(crate) unsafe fn shown(self) -> String {
        // SAFETY: the caller promises it.
        match unsafe { self.text() } {
            Ok(text) => escaped(text, char::is_control),
            Err(too_long) => too_long.to_string(),
        }
    }
}

/// The longest text that the interface allows, in bytes.
pub(crate) const LONGEST_TEXT: usize = 64 << 10;

/// A text is longer than the interface allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong(usize);

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the plugin passed a text of {} bytes; expected at most {LONGEST_TEXT}", self.0)
    }
}

fn escaped(text: Cow<'_, str>, is_escaped: impl Fn(char) -> bool) -> String {
    if !text.contains(&is_escaped) {
        return text.into_owned();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for next in text.chars() {
        if is_escaped(next) { shown.extend(next.escape_debug()) } else { shown.push(next) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_all_others_stay() {
        let text = Str::of("a \u{1b}[31mline\n\0 of \"text\" ü");
        // SAFETY: the text is a literal.
        let (shown, lines) = unsafe { (text.shown(), text.shown_lines()) };
        assert_eq!(shown, "a \\u{1b}[31mline\\n\\0 of \"text\" ü");
        assert_eq!(lines, "a \\u{1b}[31mline\n\\0 of \"text\" ü");
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let text = "ü".repeat(LONGEST_TEXT);
        assert_eq!(Str::cut(&text).len, LONGEST_TEXT);
        assert_eq!(Str::cut(&text[2..]).len, LONGEST_TEXT);
        assert_eq!(Str::cut(&format!("x{text}")).len, LONGEST_TEXT - 1);
    }

    #[test]
    fn a_text_that_is_too_long_is_not_read() {
        let text = Str { start: ptr::dangling(), len: usize::MAX };
        // SAFETY: no text is this long.
        let error = unsafe { text.text() }.unwrap_err();
        assert_eq!(error, TooLong(usize::MAX));
        // SAFETY: no text is this long.
        let shown = unsafe { text.shown() };
        assert_eq!(
            shown,
            format!("the plugin passed a text of {} bytes; expected at most 65536", usize::MAX)
        );
    }
}
