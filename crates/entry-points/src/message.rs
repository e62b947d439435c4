//! Text for messages. Not public API: shared with the other crates of this repository, which depend on the exact
//! version.

use std::any::Any;
use std::path::Path;

pub use crate::nearest::nearest;

/// Text from outside the program, escaped and cut for one line of a message.
#[must_use]
pub fn shown(text: &str) -> String {
    const LIMIT: usize = 64;
    let mut shown: String = text.chars().take(LIMIT).flat_map(char::escape_debug).collect();
    if text.chars().nth(LIMIT).is_some() {
        shown.push('…');
    }
    shown
}

/// A path, escaped for one line of a message. It is not cut: half of a path leads nowhere. On Windows the separator `\` stays
/// as it is.
#[must_use]
pub fn shown_path(path: &Path) -> String {
    let mut shown = String::new();
    for c in path.to_string_lossy().chars() {
        match c {
            '\\' | '\'' if cfg!(windows) => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// The text of a panic. A payload of any other type is leaked, since its `drop` could panic again.
#[must_use]
pub fn panic_message(payload: Box<dyn Any + Send>) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        std::mem::forget(payload);
        "a panic without a message".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_escaped_and_cut() {
        assert_eq!(shown("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
        assert_eq!(shown(&"x".repeat(100)).chars().count(), 65);
    }

    #[test]
    fn a_path_is_escaped_and_not_cut() {
        let long = format!("/opt/{}/lib\n.so", "x".repeat(100));
        assert_eq!(shown_path(Path::new(&long)), long.replace('\n', "\\n"));
    }

    #[test]
    fn a_backslash_is_escaped_where_it_is_no_separator() {
        let expected = if cfg!(windows) { r"C:\O'Neil\x.dll" } else { r"C:\\O\'Neil\\x.dll" };
        assert_eq!(shown_path(Path::new(r"C:\O'Neil\x.dll")), expected);
    }
}
