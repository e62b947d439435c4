//! The grammar of the names of entry points and of their options.

/// The longest name, in bytes.
pub(crate) const LONGEST_NAME: usize = 32;

pub(crate) const fn is_name(name: &[u8]) -> bool {
    if name.is_empty() || name.len() > LONGEST_NAME || name[0].is_ascii_digit() {
        return false;
    }
    let mut i = 0;
    while i < name.len() {
        if !matches!(name[i], b'a'..=b'z' | b'0'..=b'9' | b'_') {
            return false;
        }
        i += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_one_grammar() {
        for good in ["a", "cpu", "vorbis", "_x", "mp3", &"a".repeat(32)] {
            assert!(is_name(good.as_bytes()), "{good}");
        }
        for bad in ["", "1a", "A", "a-b", "a b", "é", "a:", "a.b", &"a".repeat(33)] {
            assert!(!is_name(bad.as_bytes()), "{bad}");
        }
    }
}
