//! Globs over entry point names: `vorb*`, `mp?`, `codec-vorbis/*`.

use std::str::Chars;

use crate::entry_point::EntryPoint;

/// A pattern: `name` or `package/name`, in which `*` stands for any text and `?` for one character.
/// Case and surrounding space do not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
    package: Option<String>,
    name: String,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        let text = text.trim();
        let folded = text.to_ascii_lowercase();
        let (package, name) = match folded.split_once('/') {
            Some((package, name)) => (Some(package.trim().to_owned()), name.trim().to_owned()),
            None => (None, folded),
        };
        Self { text: text.to_owned(), package, name }
    }

    /// The pattern as the user wrote it, without surrounding space.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn matches<P: ?Sized>(&self, point: &EntryPoint<P>) -> bool {
        let package = || point.package().unwrap_or_default().to_ascii_lowercase();
        glob(&self.name, point.name()) && self.package.as_deref().is_none_or(|glob_| glob(glob_, &package()))
    }
}

/// Allocates nothing, and takes at most quadratic time for any number of stars: it retries only the last one.
fn glob(pattern: &str, text: &str) -> bool {
    let mut pattern = pattern.chars();
    let mut text = text.chars();
    // The rest of the pattern behind its last star, and the text to compare with it.
    let mut star: Option<(Chars<'_>, Chars<'_>)> = None;
    loop {
        let mut rest = pattern.clone();
        let mut after = text.clone();
        match (rest.next(), after.next()) {
            (Some('*'), _) => {
                star = Some((rest.clone(), text.clone()));
                pattern = rest;
            }
            (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                (pattern, text) = (rest, after);
            }
            (None, None) => return true,
            (Some(_), None) => return false,
            (_, Some(_)) => {
                let Some((behind, from)) = &mut star else { return false };
                from.next();
                (pattern, text) = (behind.clone(), from.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::LoadFailure;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text, expected) in [
            ("vorbis", "vorbis", true),
            ("vorbis", "vorbis2", false),
            ("vorb*", "vorbis", true),
            ("*bis", "vorbis", true),
            ("v*b*s", "vorbis", true),
            ("v*x*s", "vorbis", false),
            ("mp?", "mp3", true),
            ("mp?", "mp", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("**", "anything", true),
            ("a*b*c", "aXbXbXc", true),
            ("codec-?", "codec-é", true),
            ("codec-??", "codec-é", false),
            ("*?x", "éx", true),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} against {text}");
        }
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        assert!(!glob(&"*a".repeat(60), &"a".repeat(59)));
        assert!(!glob(&format!("{}b", "*a".repeat(200)), &"a".repeat(5000)));
    }

    #[test]
    fn case_and_space_do_not_matter_and_a_slash_names_the_package() {
        let load = || -> Result<Box<u8>, LoadFailure> { Ok(Box::new(0)) };
        let point = EntryPoint::<u8>::new("vorbis", load).in_package("codec-vorbis", "0.1.0");
        for (pattern, expected) in [
            (" Vorbis ", true),
            ("codec-vorbis/vorbis", true),
            ("Codec-* / vorb*", true),
            ("other/vorbis", false),
            ("*/cpu", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(&point), expected, "{pattern}");
        }
        let bare = EntryPoint::<u8>::new("vorbis", load);
        assert!(!Pattern::new("codec-vorbis/vorbis").matches(&bare));
        assert!(Pattern::new("*/vorbis").matches(&bare));
    }
}
