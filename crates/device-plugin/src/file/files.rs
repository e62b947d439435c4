//! Opening files, and paths as the loader takes them.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Opens a file for reading, if it is a regular one.
///
/// Opening a device file can have effects, so the kind is checked first. A pipe that replaces the file in
/// between is opened without waiting for its writer.
pub(crate) fn open_regular(path: &Path) -> Result<(File, Metadata), OpenError> {
    let before = path.metadata()?;
    if !before.is_file() {
        return Err(OpenError::Irregular(before.file_type()));
    }
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok((file, metadata)) } else { Err(OpenError::Irregular(metadata.file_type())) }
}

/// Why a file was not opened. It is printed behind the name of the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("expected a regular file, found {}", kind(*.0))]
    Irregular(FileType),
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
}

fn kind(of: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        match () {
            () if of.is_fifo() => return "a pipe",
            () if of.is_socket() => return "a socket",
            () if of.is_block_device() || of.is_char_device() => return "a device file",
            () => {}
        }
    }
    if of.is_dir() { "a folder" } else { "something else" }
}

/// The absolute path without links. On Windows it has no prefix `\\?\` where it works without, as not every
/// function that loads libraries takes one.
pub(crate) fn canonical(path: &Path) -> io::Result<PathBuf> {
    let path = path.canonicalize()?;
    #[cfg(windows)]
    if let Some(short) = path.to_str().and_then(without_prefix) {
        return Ok(short.into());
    }
    Ok(path)
}

/// `C:\folder` for `\\?\C:\folder`. A path of 260 characters or more needs the prefix, as do other kinds of
/// paths, and names that lead elsewhere without it.
#[cfg(any(windows, test))]
fn without_prefix(path: &str) -> Option<&str> {
    let short = path.strip_prefix(r"\\?\")?;
    let is_drive = matches!(short.as_bytes(), [b'A'..=b'Z' | b'a'..=b'z', b':', b'\\', ..]);
    (is_drive && short.len() < 260 && !short.split('\\').any(is_special)).then_some(short)
}

/// Whether Windows mistakes a name for another one: it cuts dots and spaces at the end, and has devices such
/// as `nul` and `com1`, which are in every folder and may have any extension.
#[cfg(any(windows, test))]
fn is_special(name: &str) -> bool {
    let stem = name.split(['.', ':']).next().unwrap_or(name).trim_end().to_ascii_lowercase();
    let is_device = match stem.as_str() {
        "con" | "prn" | "aux" | "nul" | "conin$" | "conout$" => true,
        stem => ["com", "lpt"].iter().any(|port| {
            let mut number = stem.strip_prefix(port).unwrap_or_default().chars();
            matches!((number.next(), number.next()), (Some('0'..='9' | '\u{b9}' | '\u{b2}' | '\u{b3}'), None))
        }),
    };
    is_device || name.ends_with(['.', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_of_a_windows_path_goes_where_the_path_works_without() {
        assert_eq!(without_prefix(r"\\?\C:\app\backends"), Some(r"C:\app\backends"));
        let long = format!(r"\\?\C:\{}", "x".repeat(260));
        for other in [r"C:\app", r"\\?\UNC\server\share", r"\\?\Volume{0}\app", &long] {
            assert_eq!(without_prefix(other), None, "{other}");
        }
        for name in ["x.", "x. .", "x ", "nul", "Nul.txt", "COM1", "lpt\u{b2}.x.dll", "con .dll"] {
            assert_eq!(without_prefix(&format!(r"\\?\C:\{name}\x.dll")), None, "{name}");
        }
        for name in ["x.dll", "nul_x", "com10", "com", "comp", "lpts.x", "lpt12.dll", "console", ".nul"] {
            let short = format!(r"C:\{name}\x.dll");
            assert_eq!(without_prefix(&format!(r"\\?\{short}")), Some(&*short));
        }
    }
}
