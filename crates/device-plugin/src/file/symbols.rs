//! Whether a file is a library that this program can open, and has a backend in it: read from the file
//! itself.

use std::io::{Read, Seek};

use entry_points::message::shown;
use object::read::macho::{FatArch, MachOFatFile32, MachOFatFile64};
use object::read::{NameOrOrdinal, ReadCache, ReadRef};
use object::{Architecture, BinaryFormat, Export, FileKind, Object, ObjectKind, ObjectSection};

use crate::abi::MAJOR;

/// The symbol that a library exports for each version of the interface, without the number.
const PREFIX: &str = "device_plugin_v";

/// Checks a library without opening it. Reads the headers and the tables of symbols, not the code.
pub(crate) fn check(file: impl Read + Seek, expected: Expected) -> Result<(), NotALibrary> {
    let data = ReadCache::new(file);
    let start = data.read_bytes_at(0, data.len().unwrap_or(0).min(64)).unwrap_or_default();
    let not_ours = |found: String| NotALibrary::Other { found, expected };
    let kind = FileKind::parse(&data).map_err(|_| not_ours(unknown_kind(start)))?;
    match kind {
        FileKind::MachOFat32 if expected.format == BinaryFormat::MachO => {
            let fat = MachOFatFile32::parse(&data).map_err(NotALibrary::Damaged)?;
            check_slices(&data, fat.arches(), expected)
        }
        FileKind::MachOFat64 if expected.format == BinaryFormat::MachO => {
            let fat = MachOFatFile64::parse(&data).map_err(NotALibrary::Damaged)?;
            check_slices(&data, fat.arches(), expected)
        }
        kind if format_of(kind) == Some(expected.format) => check_library(&data, expected),
        kind => Err(not_ours(match format_of(kind) {
            Some(format) => describe(format).to_owned(),
            None => "a file of another kind".to_owned(),
        })),
    }
}

/// Checks the part of a universal library of macOS that is for this processor.
fn check_slices<R: Read + Seek>(
    data: &ReadCache<R>,
    slices: &[impl FatArch],
    expected: Expected,
) -> Result<(), NotALibrary> {
    match slices.iter().find(|slice| slice.architecture() == expected.architecture) {
        Some(slice) => {
            let (offset, len) = slice.file_range();
            check_library(data.range(offset, len), expected)
        }
        None => {
            let names: Vec<_> = slices.iter().map(|slice| name_of(slice.architecture())).collect();
            let found = format!("a universal library of macOS for {}", names.join(" and "));
            Err(NotALibrary::Other { found, expected })
        }
    }
}

fn check_library<'a>(data: impl ReadRef<'a>, expected: Expected) -> Result<(), NotALibrary> {
    let file = object::File::parse(data).map_err(NotALibrary::Damaged)?;
    let is_for_this_processor = match expected.architecture {
        // A processor that `object` does not know by this name. Opening the library finds out.
        Architecture::Unknown => true,
        known => file.architecture() == known && file.is_little_endian() == expected.little_endian,
    };
    let found = match file.kind() {
        ObjectKind::Relocatable => "an object file, which is not linked yet",
        ObjectKind::Executable => "a program",
        ObjectKind::Core => "a core dump",
        // A bundle of macOS has no kind of its own.
        _ if is_for_this_processor => return check_length(&file, data).and_then(|()| check_exports(&file)),
        _ => describe(file.format()),
    };
    let found = format!("{found} for {}", name_of(file.architecture()));
    Err(NotALibrary::Other { found, expected })
}

/// A library of Windows has its exports anywhere, and so the rest can be missing. Other formats have tables
/// at their ends.
fn check_length<'a, R: ReadRef<'a>>(file: &object::File<'a, R>, data: R) -> Result<(), NotALibrary> {
    let len = data.len().unwrap_or(0);
    let ends = file.sections().filter_map(|section| {
        let (start, len) = section.file_range()?;
        Some(start.saturating_add(len))
    });
    match ends.max() {
        Some(end) if end > len && file.format() == BinaryFormat::Pe => Err(NotALibrary::Cut { end, len }),
        _ => Ok(()),
    }
}

fn check_exports<'a, R: ReadRef<'a>>(file: &object::File<'a, R>) -> Result<(), NotALibrary> {
    let mut others = Vec::new();
    for export in file.exports().map_err(NotALibrary::Damaged)? {
        let Some(version) = export.ok().and_then(|export| version_of(&export, file.format())) else {
            continue;
        };
        if version == MAJOR {
            return Ok(());
        }
        others.push(version);
    }
    others.sort_unstable();
    Err(if others.is_empty() { NotALibrary::NoSymbol } else { NotALibrary::OtherVersion(others) })
}

/// The version of the interface whose symbol this is.
fn version_of(export: &Export<'_>, format: BinaryFormat) -> Option<u32> {
    let NameOrOrdinal::Name(name) = export.name() else { return None };
    // Names of C have an underscore in front on macOS.
    let underscore: &[u8] = if format == BinaryFormat::MachO { b"_" } else { b"" };
    let digits = name.strip_prefix(underscore)?.strip_prefix(PREFIX.as_bytes())?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// What the program itself is: it can open libraries of the same kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    format: BinaryFormat,
    architecture: Architecture,
    little_endian: bool,
}

impl Expected {
    pub(crate) const fn of_this_program() -> Self {
        let format = if cfg!(windows) {
            BinaryFormat::Pe
        } else if cfg!(target_vendor = "apple") {
            BinaryFormat::MachO
        } else {
            BinaryFormat::Elf
        };
        let is_64 = cfg!(target_pointer_width = "64");
        let architecture = match () {
            () if cfg!(target_arch = "x86_64") && is_64 => Architecture::X86_64,
            () if cfg!(target_arch = "x86") => Architecture::I386,
            () if cfg!(target_arch = "aarch64") && is_64 => Architecture::Aarch64,
            () if cfg!(target_arch = "arm") => Architecture::Arm,
            () if cfg!(target_arch = "riscv64") => Architecture::Riscv64,
            () if cfg!(target_arch = "riscv32") => Architecture::Riscv32,
            () if cfg!(target_arch = "powerpc64") => Architecture::PowerPc64,
            () if cfg!(target_arch = "s390x") => Architecture::S390x,
            () if cfg!(target_arch = "loongarch64") => Architecture::LoongArch64,
            () => Architecture::Unknown,
        };
        Self { format, architecture, little_endian: cfg!(target_endian = "little") }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(describe(self.format))?;
        match self.architecture {
            Architecture::Unknown => Ok(()),
            known => write!(f, " for {}", name_of(known)),
        }
    }
}

/// Why a file is not a library with a backend for this program. It is printed behind the name of the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotALibrary {
    #[error("is {found}; expected {expected}")]
    Other { found: String, expected: Expected },
    #[error("is damaged or was copied in part: {0}")]
    Damaged(object::Error),
    #[error("was copied in part: it has {len} bytes, and its sections end at {end}")]
    Cut { end: u64, len: u64 },
    #[error(
        "has no backend in it: it does not export `{PREFIX}{MAJOR}`, as a library with `device_plugin::export!` does"
    )]
    NoSymbol,
    #[error(
        "is built for another version of the interface: it exports {}, and this program needs `{PREFIX}{MAJOR}`",
        .0.iter().map(|version| format!("`{PREFIX}{version}`")).collect::<Vec<_>>().join(" and ")
    )]
    OtherVersion(Vec<u32>),
}

fn format_of(kind: FileKind) -> Option<BinaryFormat> {
    match kind {
        FileKind::Elf32 | FileKind::Elf64 => Some(BinaryFormat::Elf),
        FileKind::MachO32 | FileKind::MachO64 | FileKind::MachOFat32 | FileKind::MachOFat64 => {
            Some(BinaryFormat::MachO)
        }
        FileKind::Pe32 | FileKind::Pe64 => Some(BinaryFormat::Pe),
        _ => None,
    }
}

fn describe(format: BinaryFormat) -> &'static str {
    match format {
        BinaryFormat::Elf => "a shared library of Linux or BSD (ELF)",
        BinaryFormat::MachO => "a shared library of macOS (Mach-O)",
        BinaryFormat::Pe => "a library of Windows (PE)",
        _ => "a library of another system",
    }
}

/// What a file is that has no known magic number.
fn unknown_kind(start: &[u8]) -> String {
    match str::from_utf8(start) {
        Ok("") => "an empty file".to_owned(),
        Ok(text) if text.starts_with("!<arch>\n") || text.starts_with("!<thin>\n") => {
            "a static library".to_owned()
        }
        Ok(text) if !text.contains('\0') => {
            format!("a text that begins with `{}`", shown(text.lines().next().unwrap_or_default()))
        }
        _ => "not in a known format".to_owned(),
    }
}

fn name_of(architecture: Architecture) -> String {
    match architecture {
        Architecture::Unknown => "an unknown processor".to_owned(),
        known => format!("{known:?}").to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Cursor, SeekFrom};

    use super::*;
    use crate::file::testing::{library, sound_library};

    const HERE: Expected = Expected::of_this_program();
    const MACOS: Expected =
        Expected { format: BinaryFormat::MachO, architecture: Architecture::Aarch64, little_endian: true };

    fn refusal(bytes: &[u8], expected: Expected) -> String {
        check(Cursor::new(bytes), expected).unwrap_err().to_string()
    }

    #[test]
    fn a_library_with_the_symbol_is_sound() {
        check(Cursor::new(sound_library()), HERE).unwrap();
        check(Cursor::new(library(&["device_plugin_v7", "device_plugin_v0"])), HERE).unwrap();
    }

    #[test]
    fn a_library_without_the_symbol_is_refused() {
        let symbol = format!("`{PREFIX}{MAJOR}`");
        let message = format!(
            "has no backend in it: it does not export {symbol}, as a library with `device_plugin::export!` does"
        );
        assert_eq!(
            refusal(&library(&["xdevice_plugin_v0", "device_plugin_v", "device_plugin_v0x"]), HERE),
            message
        );
        let message = format!(
            "is built for another version of the interface: it exports `device_plugin_v2` and `device_plugin_v10`, and \
             this program needs {symbol}"
        );
        assert_eq!(refusal(&library(&["device_plugin_v10", "device_plugin_v2"]), HERE), message);
    }

    #[test]
    fn what_is_no_library_is_named() {
        for (bytes, found) in [
            (&b""[..], "an empty file"),
            (b"#!/bin/sh\nexit 1\n", "a text that begins with `#!/bin/sh`"),
            (b"!<arch>\n/               0 ", "a static library"),
            (b"\0\x01\x02\xff and whatever else", "not in a known format"),
            (b"\x7fEL", "a text that begins with `\\u{7f}EL`"),
        ] {
            assert_eq!(refusal(bytes, HERE), format!("is {found}; expected {HERE}"));
        }
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn a_library_for_another_processor_or_system_is_refused() {
        let ours = "a shared library of Linux or BSD (ELF) for x86_64";
        let mut arm = sound_library().to_vec();
        // `e_machine`: EM_AARCH64.
        arm[18] = 183;
        let message = format!("is a shared library of Linux or BSD (ELF) for aarch64; expected {ours}");
        assert_eq!(refusal(&arm, HERE), message);
        // `e_type`: an object file, and a program at a fixed address.
        for (number, kind) in [(1, "an object file, which is not linked yet"), (2, "a program")] {
            let mut other = sound_library().to_vec();
            other[16] = number;
            assert_eq!(refusal(&other, HERE), format!("is {kind} for x86_64; expected {ours}"));
        }
        let macos = [&[0xcf, 0xfa, 0xed, 0xfe][..], &[0; 60]].concat();
        assert_eq!(refusal(&macos, HERE), format!("is a shared library of macOS (Mach-O); expected {ours}"));
        let expected = "a shared library of macOS (Mach-O) for aarch64";
        assert_eq!(
            refusal(sound_library(), MACOS),
            format!("is a shared library of Linux or BSD (ELF); expected {expected}")
        );
    }

    #[test]
    fn a_library_of_windows_is_named() {
        let mut windows = vec![0; 0x200];
        windows[..2].copy_from_slice(b"MZ");
        windows[0x3c] = 0x80;
        windows[0x80..0x84].copy_from_slice(b"PE\0\0");
        windows[0x98..0x9a].copy_from_slice(&[0x0b, 0x02]);
        assert!(
            refusal(&windows, MACOS)
                .starts_with("is a library of Windows (PE); expected a shared library of macOS")
        );
    }

    #[test]
    fn a_universal_library_is_read_in_the_part_for_this_processor() {
        // The header, and two parts: x86_64 and arm64, of 32 bytes each.
        let words = [0xcafe_babe_u32, 2, 0x0100_0007, 3, 64, 32, 5, 0x0100_000c, 0, 96, 32, 5];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.resize(64, 0);
        // Headers of Mach-O without commands: the type is a library.
        for processor in [0x0100_0007_u32, 0x0100_000c] {
            let words = [0xfeed_facf_u32, processor, 0, 6, 0, 0, 0, 0];
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        assert!(refusal(&bytes, MACOS).starts_with("has no backend in it"), "{}", refusal(&bytes, MACOS));
        let other = Expected { architecture: Architecture::Riscv64, ..MACOS };
        assert!(
            refusal(&bytes, other)
                .starts_with("is a universal library of macOS for x86_64 and aarch64; expected")
        );
    }

    #[test]
    fn a_library_that_is_cut_anywhere_is_refused_without_a_panic() {
        let whole = sound_library();
        for len in (0..whole.len()).step_by(whole.len() / 200 + 1).chain(0..200) {
            assert!(check(Cursor::new(&whole[..len]), HERE).is_err(), "{len} of {}", whole.len());
        }
        assert!(refusal(&whole[..whole.len() / 2], HERE).contains("was copied in part: "));
    }

    #[test]
    fn bytes_that_are_changed_cause_no_panic() {
        let whole = sound_library();
        for at in (0..64).chain((64..whole.len()).step_by(whole.len() / 500 + 1)) {
            let mut changed = whole.to_vec();
            changed[at] ^= 0xff;
            let _ = check(Cursor::new(changed), HERE);
        }
    }

    /// Counts the bytes that are read.
    struct Counted<'a> {
        inner: Cursor<&'a [u8]>,
        read: &'a std::cell::Cell<usize>,
    }

    impl Read for Counted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let len = self.inner.read(buffer)?;
            self.read.set(self.read.get() + len);
            Ok(len)
        }
    }

    impl Seek for Counted<'_> {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.inner.seek(to)
        }
    }

    #[test]
    fn the_code_of_a_library_is_not_read() {
        let bytes = sound_library();
        let read = std::cell::Cell::new(0);
        check(Counted { inner: Cursor::new(bytes), read: &read }, HERE).unwrap();
        assert!(read.get() < 64 << 10, "{} of {} bytes", read.get(), bytes.len());
    }
}
