//! What a library contains, read from the file itself: what it exports and needs, and where it looks for
//! that.

use std::fs::File;
use std::path::Path;

use object::read::elf::{ElfFile, FileHeader};
use object::read::{NameOrOrdinal, ReadCache, ReadRef};
use object::{BinaryFormat, ExportFlags, Object, elf};

use crate::abi;

/// What a library contains.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The symbols that it exports, without the one of the interface.
    pub(super) exports: Vec<Exported>,
    /// The libraries that the system loads with it.
    pub(super) needs: Vec<String>,
    /// Where the system looks for them first, as the library says: `DT_RUNPATH` and `DT_RPATH`.
    pub(super) search_path: Vec<String>,
    /// Whether it has symbols or debug information that running it does not need.
    pub(super) has_debug_symbols: bool,
}

/// A symbol that a library exports.
#[derive(Debug)]
pub(super) struct Exported {
    pub(super) name: String,
    /// Whether another library may have one of the same name take its place.
    pub(super) is_interposable: bool,
}

impl Exported {
    /// Whether it is a bound of a section in which `linkme` collects.
    pub(super) fn is_of_linkme(&self) -> bool {
        ["__start_", "__stop_"].iter().any(|bound| {
            let section = self.name.strip_prefix(bound);
            section.is_some_and(|section| section.starts_with("linkme_") || section.starts_with("linkm2_"))
        })
    }
}

/// Reads a library. It is `None` for a file that cannot be read, or a universal library of macOS.
pub(super) fn read(library: &Path) -> Option<Contents> {
    let data = ReadCache::new(File::open(library).ok()?);
    let file = object::File::parse(&data).ok()?;
    let underscore: &[u8] = if file.format() == BinaryFormat::MachO { b"_" } else { b"" };
    let mut exports = Vec::new();
    for export in file.exports().ok()?.flatten() {
        let NameOrOrdinal::Name(name) = export.name() else { continue };
        let name = String::from_utf8_lossy(name.strip_prefix(underscore).unwrap_or(name)).into_owned();
        let is_interposable = match export.flags() {
            ExportFlags::Elf { st_other, .. } => st_other.visibility() == elf::STV_DEFAULT,
            _ => false,
        };
        if name != abi::SYMBOL {
            exports.push(Exported { name, is_interposable });
        }
    }
    exports.sort_by(|one, other| one.name.cmp(&other.name));
    let needs = file.import_libraries().ok()?.flatten();
    let needs = needs.map(|library| String::from_utf8_lossy(library.name()).into_owned()).collect();
    let search_path = match &file {
        object::File::Elf32(file) => search_path(file),
        object::File::Elf64(file) => search_path(file),
        _ => Vec::new(),
    };
    // In a small library they are no loss.
    let is_large = std::fs::metadata(library).is_ok_and(|file| file.len() > 1 << 20);
    let has_debug_symbols = is_large && (file.has_debug_symbols() || file.symbols().next().is_some());
    Some(Contents { exports, needs, search_path, has_debug_symbols })
}

fn search_path<'data, Elf: FileHeader, R: ReadRef<'data>>(file: &ElfFile<'data, Elf, R>) -> Vec<String> {
    let table = file.elf_section_table().dynamic_table(file.endian(), file.data());
    let Ok(table) = table else { return Vec::new() };
    let paths = table.iter().filter(|entry| [elf::DT_RPATH, elf::DT_RUNPATH].contains(&entry.tag));
    let paths = paths.filter_map(|entry| table.string(entry).ok());
    paths
        .flat_map(|path| String::from_utf8_lossy(path).split(':').map(str::to_owned).collect::<Vec<_>>())
        .collect()
}
