//! Text for messages. Not public API: shared with the other crates of this repository, which depend on the
//! exact version.

use std::any::Any;
use std::fmt;
use std::path::Path;

pub use crate::nearest::nearest;

/// The end of a message about an unknown name, if there is a similar one.
pub fn did_you_mean(similar: Option<impl fmt::Display>) -> impl fmt::Display {
    fmt::from_fn(move |f| match &similar {
        Some(similar) => write!(f, "; did you mean `{similar}`?"),
        None => Ok(()),
    })
}

/// The values of a variable that is on or off, for messages.
pub const SWITCH_WORDS: &str = "1, true, yes or on, or else 0, false, no or off";

/// Whether a variable with one of [`SWITCH_WORDS`] is on. `None` for any other value. Case and surrounding
/// space do not matter.
#[must_use]
pub fn parse_switch(value: &str) -> Option<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// `a`, `a and b`, `a, b and c`.
#[must_use]
pub fn and(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}

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

/// A path, escaped for one line of a message. It is not cut, as half a path is useless. On Windows the
/// separator `\` stays as it is.
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
    fn the_words_of_a_switch_are_those_of_its_message() {
        let words: Vec<_> =
            SWITCH_WORDS.split([',', ' ']).filter(|word| !["", "or", "else"].contains(word)).collect();
        let values: Vec<_> = words.iter().map(|word| parse_switch(word)).collect();
        assert_eq!(values, [[Some(true); 4], [Some(false); 4]].concat(), "{words:?}");
        assert_eq!([" Off ", "", "0.0"].map(parse_switch), [Some(false), None, None]);
    }

    #[test]
    fn lists_read_as_sentences() {
        let items = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
        assert_eq!([and(&items(1)), and(&items(2)), and(&items(3))], ["0", "0 and 1", "0, 1 and 2"]);
    }

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
