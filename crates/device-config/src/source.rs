//! The text of a file, and places in it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Far more than a file needs that people write.
const LONGEST: u64 = 1 << 20;

/// A place in a text. Both numbers begin at 1, and a column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// The places of a text's bytes. To find one takes a search, and not a pass over all that is before it.
pub(crate) struct Places<'a> {
    text: &'a str,
    /// Where each line begins.
    lines: Vec<usize>,
    /// How many characters begin before each block of bytes.
    chars: Vec<usize>,
}

impl<'a> Places<'a> {
    const BLOCK: usize = 256;

    pub(crate) fn of(text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(end, _)| end + 1);
        let blocks = text.as_bytes().chunks(Self::BLOCK);
        let chars = blocks.scan(0, |sum, block| {
            let before = *sum;
            *sum += chars_in(block);
            Some(before)
        });
        Self { text, lines: std::iter::once(0).chain(ends).collect(), chars: chars.collect() }
    }

    /// The place of a byte. A place behind the text, or within a character, counts as the nearest before it.
    pub(crate) fn at(&self, byte: usize) -> At {
        let byte = self.text.floor_char_boundary(byte);
        let line = self.lines.partition_point(|&start| start <= byte);
        let start = self.lines[line - 1];
        At { line, column: self.chars_before(byte) - self.chars_before(start) + 1 }
    }

    fn chars_before(&self, byte: usize) -> usize {
        let block = byte / Self::BLOCK;
        let start = block * Self::BLOCK;
        match self.chars.get(block) {
            Some(chars) => chars + chars_in(&self.text.as_bytes()[start..byte]),
            // The text ends with the block before, or is empty.
            None => self.text.chars().count(),
        }
    }
}

/// How many characters begin in a part of a text.
fn chars_in(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte & 0xc0 != 0x80).count()
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located<T> {
    pub(crate) value: T,
    pub(crate) at: At,
}

/// What is wrong in a text, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) at: At,
    pub(crate) message: String,
}

/// The bytes of a regular file. Reading a device file can have effects, and a pipe would wait for its writer.
pub(crate) fn read(file: &Path) -> io::Result<Vec<u8>> {
    let invalid = |message: String| io::Error::new(io::ErrorKind::InvalidInput, message);
    if !file.metadata()?.is_file() {
        return Err(invalid("expected a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    File::open(file)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(invalid(format!("expected at most {LONGEST} bytes")));
    }
    Ok(bytes)
}

/// The bytes as text.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Mistake> {
    str::from_utf8(bytes).map_err(|error| {
        let valid = str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
        let message = format!("expected UTF-8, found the byte 0x{:02x}", bytes[error.valid_up_to()]);
        Mistake { at: Places::of(valid).at(valid.len()), message }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one() {
        let text = "a\r\né = 1\n";
        let at = |byte| {
            let At { line, column } = Places::of(text).at(byte);
            (line, column)
        };
        assert_eq!([at(0), at(3), at(4), at(5), at(99)], [(1, 1), (2, 1), (2, 1), (2, 2), (3, 1)]);
        assert_eq!(Places::of("").at(0), At { line: 1, column: 1 });
        // Longer than a block.
        let text = format!("{}\n{}", "é".repeat(300), "aé\u{1d11e}".repeat(200));
        let places = Places::of(&text);
        for byte in 0..text.len() + 2 {
            let before = &text[..text.floor_char_boundary(byte)];
            let last = before.rsplit('\n').next().unwrap();
            let line = before.matches('\n').count() + 1;
            let column = last.chars().count() + 1;
            assert_eq!(places.at(byte), At { line, column }, "byte {byte}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_have_a_place() {
        let mistake = text(b"a\nb\xff").unwrap_err();
        assert_eq!(mistake.at, At { line: 2, column: 2 });
        assert_eq!(mistake.message, "expected UTF-8, found the byte 0xff");
    }

    #[test]
    fn a_folder_and_a_file_that_is_too_long_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap_err().to_string(), "expected a regular file");
        let file = folder.path().join("long");
        std::fs::write(&file, vec![b'#'; LONGEST as usize + 1]).unwrap();
        assert_eq!(read(&file).unwrap_err().to_string(), "expected at most 1048576 bytes");
    }
}
