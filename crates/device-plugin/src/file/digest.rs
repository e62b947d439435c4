//! The SHA-256 of a file, and its text form.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// The digest of the rest of a file.
pub(crate) fn of(file: &mut File) -> io::Result<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hash.finalize().into()),
            Ok(read) => hash.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A digest of 64 hexadecimal digits.
pub(super) fn parse(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(digest)
}

/// The digits of a digest, in lower case.
pub(crate) fn show(digest: &[u8; 32]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    #[test]
    fn the_digest_of_a_file_is_that_of_its_bytes() {
        // The second example of FIPS 180-2, in one piece and in more than one buffer.
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&b"a".repeat(1_000_000)).unwrap();
        file.rewind().unwrap();
        let expected = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
        assert_eq!(show(&of(&mut file).unwrap()), expected);
    }

    #[test]
    fn digits_of_either_case_are_a_digest_and_nothing_else_is() {
        let digits = "0123456789abcdef".repeat(4);
        assert_eq!(show(&parse(&digits).unwrap()), digits);
        assert_eq!(parse(&digits.to_uppercase()), parse(&digits));
        for other in ["", &digits[1..], &format!("{digits}0"), &format!("+{}", &digits[1..]), &"é".repeat(32)]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
