//! Compiled programs on disk: one file for each, in one folder.
//!
//! A file has its key, the program and a checksum of both. Files are written to another name first, so that
//! nobody reads a half of one. Whatever is wrong with a file, the program is compiled and the file replaced.

use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// What a file begins with. A change of the format changes it.
const BEGIN: &[u8] = b"device-generated-kernels 1\n";

/// The bytes of a checksum.
const SUM: usize = 32;

/// How the names of files end.
const EXTENSION: &str = "program";

/// How the names of files end that are being written.
const UNFINISHED: &str = "tmp";

/// The letters of a name in front of the ending: a checksum.
const LETTERS: usize = 64;

/// The longest file that is read: no program of a kernel is as long.
const LONGEST: u64 = 64 << 20;

/// How old a file becomes before a use is recorded, so that not every use writes to the disk.
const FRESH: Duration = Duration::from_secs(24 * 3600);

/// How long it takes until an unfinished file is one of a process that has ended.
const ABANDONED: Duration = Duration::from_secs(3600);

/// What a program follows from: the driver, the options and the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Each part is quoted, so that no two lists of parts have one key.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        Self(parts.into_iter().map(|part| format!("{part:?}\n")).collect())
    }

    /// The name of its file.
    fn name(&self) -> String {
        let sum = Sha256::digest(&self.0);
        sum.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "." + EXTENSION
    }
}

/// What is found for a key.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// There is no file.
    Nothing,
    /// The bytes that were kept.
    Program(Vec<u8>),
    /// There is a file, and it must not be used for this reason.
    Unusable(String),
}

/// A folder of compiled programs. Threads and processes may use it at once.
pub struct Disk {
    folder: PathBuf,
    /// How many bytes the files may have.
    limit: u64,
    /// How many bytes they have, as far as this process knows: it counts at its first write.
    known: Mutex<Option<u64>>,
    /// Whether a write failed. Then there are no others.
    failed: AtomicBool,
    /// Whether a warning says that other users may write to the folder.
    warned: AtomicBool,
}

impl Disk {
    /// A folder, in which the oldest files are removed when there are more bytes than the limit.
    pub(crate) fn new(folder: PathBuf, limit: u64) -> Self {
        let failed = AtomicBool::new(false);
        let warned = AtomicBool::new(false);
        Self { folder, limit, known: Mutex::new(None), failed, warned }
    }

    /// Where the program of a key is.
    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(key.name())
    }

    /// What `load` makes of the program of a key, and the program. `None` if there is none that it takes,
    /// which is logged.
    pub fn load<T, E: fmt::Display>(
        &self,
        key: &Key,
        load: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Option<(T, Vec<u8>)> {
        let reason = match self.read(key) {
            Found::Nothing => return None,
            Found::Unusable(reason) => reason,
            Found::Program(program) => match load(&program) {
                Ok(made) => {
                    log::debug!("made a program from {}", self.path(key).display());
                    return Some((made, program));
                }
                Err(error) => format!("the driver refuses it: {error}"),
            },
        };
        log::warn!("{} is not used, and made again: {reason}", self.path(key).display());
        None
    }

    /// The program of a key.
    fn read(&self, key: &Key) -> Found {
        match self.try_read(key) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Nothing,
            Err(error) => Found::Unusable(error.to_string()),
        }
    }

    fn try_read(&self, key: &Key) -> io::Result<Found> {
        let file = rights::open(&self.path(key))?;
        let metadata = file.metadata()?;
        // Whoever writes a program decides what this process does.
        if let Err(reason) = rights::check(&fs::metadata(&self.folder)?) {
            self.warn_of_folder(&reason);
            return Ok(Found::Nothing);
        }
        if let Err(reason) = rights::check(&metadata) {
            return Ok(Found::Unusable(reason));
        }
        if !metadata.is_file() || metadata.len() > LONGEST {
            return Ok(Found::Unusable("it is no file of a program".to_owned()));
        }
        let mut bytes = Vec::with_capacity(metadata.len() as usize);
        Read::take(&file, LONGEST).read_to_end(&mut bytes)?;
        Ok(match parse(&bytes, key) {
            Ok(program) => {
                note_use(&file, &metadata);
                Found::Program(program.to_vec())
            }
            Err(reason) => Found::Unusable(reason.to_owned()),
        })
    }

    /// Once, and not for each program.
    fn warn_of_folder(&self, reason: &str) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            log::warn!("no compiled program in {} is used: {reason}", self.folder.display());
        }
    }

    /// Keeps a program. After a failure there are no other attempts, unless it is of this program alone.
    pub fn write(&self, key: &Key, program: &[u8]) {
        if self.failed.load(Ordering::Relaxed) {
            return;
        }
        match self.try_write(key, program) {
            Ok(()) => {}
            // In the place of the file: `read` says so in each process. It is not removed, as it is not ours.
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                log::debug!("a compiled program is not kept in {}: {error}", self.path(key).display());
            }
            Err(error) => {
                self.failed.store(true, Ordering::Relaxed);
                log::debug!("compiled programs are not kept in {}: {error}", self.folder.display());
            }
        }
    }

    fn try_write(&self, key: &Key, program: &[u8]) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);

        rights::new_folder().recursive(true).create(&self.folder)?;
        rights::check(&fs::metadata(&self.folder)?).map_err(io::Error::other)?;
        let finished = self.path(key);
        // Processes in other containers may have the same number, and share the folder.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let random = RandomState::new().hash_one(number);
        let unfinished = finished.with_extension(format!("{}-{random:016x}.{UNFINISHED}", process::id()));
        let bytes = format(key, program);
        let mut file = rights::new_file().write(true).create_new(true).open(&unfinished)?;
        // No `fsync`: it takes longer than the program takes to be written, and after a power failure the
        // checksum says so.
        let written = file.write_all(&bytes);
        drop(file);
        if let Err(error) = written.and_then(|()| fs::rename(&unfinished, finished)) {
            let _ = fs::remove_file(&unfinished);
            return Err(error);
        }
        self.bound(bytes.len() as u64)
    }

    /// Removes the oldest files if there are too many bytes, after so many were added.
    fn bound(&self, added: u64) -> io::Result<()> {
        let mut known = self.known.lock();
        if let Some(bytes) = &mut *known {
            *bytes += added;
            if *bytes <= self.limit {
                return Ok(());
            }
        }
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let path = entry.path();
            // Another process may have removed it.
            let Ok(metadata) = entry.metadata() else { continue };
            let changed = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            match entry.file_name().to_str().and_then(Name::parse) {
                Some(Name::Program) => files.push((changed, metadata.len(), path)),
                Some(Name::Unfinished) if changed.elapsed().is_ok_and(|age| age > ABANDONED) => {
                    let _ = fs::remove_file(path);
                }
                // The folder is one that the user names, and may have other files.
                Some(Name::Unfinished) | None => {}
            }
        }
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, len, _)| len).sum();
        if bytes > self.limit {
            // A quarter at once, so that the next writes need not look again.
            for (_, len, path) in &files {
                if bytes <= self.limit / 4 * 3 {
                    break;
                }
                if fs::remove_file(path).is_ok() {
                    bytes -= len;
                }
            }
            log::debug!("the oldest programs in {} were removed", self.folder.display());
        }
        *known = Some(bytes);
        Ok(())
    }
}

/// What a file of ours is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Program,
    Unfinished,
}

impl Name {
    /// `None` for a file that is not ours.
    fn parse(name: &str) -> Option<Self> {
        let (key, ending) = name.split_once('.')?;
        if key.len() != LETTERS || !key.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        let is_unfinished = || ending.strip_suffix(UNFINISHED)?.strip_suffix('.').map(|_| Self::Unfinished);
        if ending == EXTENSION { Some(Self::Program) } else { is_unfinished() }
    }
}

/// A use makes a file young again.
fn note_use(file: &File, metadata: &Metadata) {
    let age = metadata.modified().ok().and_then(|changed| changed.elapsed().ok());
    if age.is_some_and(|age| age > FRESH) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// The bytes of a file.
fn format(key: &Key, program: &[u8]) -> Vec<u8> {
    let mut bytes = BEGIN.to_vec();
    for part in [key.0.as_bytes(), program] {
        bytes.extend((part.len() as u64).to_le_bytes());
    }
    bytes.extend(key.0.as_bytes());
    bytes.extend(program);
    let sum = Sha256::digest(&bytes);
    bytes.extend(sum);
    bytes
}

/// The program in the bytes of a file, or why there is none.
fn parse<'a>(bytes: &'a [u8], key: &Key) -> Result<&'a [u8], &'static str> {
    let torn = "it is not whole";
    let (content, sum) = bytes.split_last_chunk::<SUM>().ok_or(torn)?;
    let rest = content.strip_prefix(BEGIN).ok_or("it is of another kind")?;
    if Sha256::digest(content).as_slice() != sum {
        return Err(torn);
    }
    let (key_len, rest) = rest.split_first_chunk().ok_or(torn)?;
    let (program_len, rest) = rest.split_first_chunk().ok_or(torn)?;
    let len = |bytes: &[u8; 8]| usize::try_from(u64::from_le_bytes(*bytes)).ok();
    let key_len = len(key_len).ok_or(torn)?;
    let program_len = len(program_len).ok_or(torn)?;
    let (found, program) = rest.split_at_checked(key_len).ok_or(torn)?;
    if found != key.0.as_bytes() {
        return Err("it is of another driver or text");
    }
    if program.len() == program_len { Ok(program) } else { Err(torn) }
}

/// Puts another program into a file, with a checksum that is right. Not public API: for a test of drivers
/// that refuse a program.
#[doc(hidden)]
#[allow(clippy::missing_panics_doc, reason = "not public API")]
pub fn replace_program(path: &Path, program: &[u8]) {
    let bytes = fs::read(path).expect("the file is there");
    let (lens, rest) = bytes[BEGIN.len()..].split_at(16);
    let len = u64::from_le_bytes(lens[..8].try_into().expect("eight bytes"));
    let key = String::from_utf8(rest[..len as usize].to_vec()).expect("a key is text");
    fs::write(path, format(&Key(key), program)).expect("the file can be written");
}

/// Files that other users cannot change.
#[cfg(unix)]
mod rights {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};

    use super::*;

    pub(super) fn new_folder() -> DirBuilder {
        let mut folder = DirBuilder::new();
        folder.mode(0o700);
        folder
    }

    /// How to make a file: for this user only, whatever mask the process has.
    pub(super) fn new_file() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.mode(0o600);
        options
    }

    /// Opens a file, and waits for nothing if it is a pipe.
    pub(super) fn open(path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)
    }

    /// # Errors
    ///
    /// Why somebody else may change it.
    pub(super) fn check(metadata: &Metadata) -> Result<(), String> {
        // SAFETY: `geteuid` has no preconditions and cannot fail.
        let user = unsafe { libc::geteuid() };
        let owner = metadata.uid();
        let mode = metadata.mode() & 0o7777;
        if owner != user && owner != 0 {
            return Err(format!("user {owner} owns it, and this process is of user {user}"));
        }
        if mode & 0o022 != 0 {
            return Err(format!("other users may write to it: its mode is {mode:o}"));
        }
        Ok(())
    }
}

/// The folders of a user are the user's own by default.
#[cfg(not(unix))]
mod rights {
    use super::*;

    pub(super) fn new_folder() -> DirBuilder {
        DirBuilder::new()
    }

    pub(super) fn new_file() -> OpenOptions {
        OpenOptions::new()
    }

    /// Opens a file to be read, whose time can be changed.
    pub(super) fn open(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true);
        #[cfg(windows)]
        {
            use std::os::windows::fs::OpenOptionsExt;

            const GENERIC_READ: u32 = 0x8000_0000;
            const FILE_WRITE_ATTRIBUTES: u32 = 0x100;
            options.access_mode(GENERIC_READ | FILE_WRITE_ATTRIBUTES);
        }
        options.open(path)
    }

    pub(super) fn check(_: &Metadata) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::of(["a driver", text])
    }

    fn disk(limit: u64) -> (tempfile::TempDir, Disk) {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::new(folder.path().join("a/b"), limit);
        (folder, disk)
    }

    #[test]
    fn keys_of_other_parts_differ() {
        assert_ne!(Key::of(["a", "b"]), Key::of(["a\"\n\"b"]));
        assert_ne!(Key::of(["a", "b"]).name(), Key::of(["ab", ""]).name());
    }

    #[test]
    fn a_program_is_found_by_its_key_only() {
        let (_folder, disk) = disk(1 << 20);
        assert_eq!(disk.read(&key("x")), Found::Nothing);
        disk.write(&key("x"), b"program");
        assert_eq!(disk.read(&key("x")), Found::Program(b"program".to_vec()));
        assert_eq!(disk.read(&key("y")), Found::Nothing);
        // Acts as if the names were equal.
        fs::copy(disk.path(&key("x")), disk.path(&key("y"))).unwrap();
        assert_eq!(disk.read(&key("y")), Found::Unusable("it is of another driver or text".to_owned()));
        disk.write(&key("y"), b"other");
        assert_eq!(disk.read(&key("y")), Found::Program(b"other".to_vec()));
    }

    #[test]
    fn no_byte_may_be_missing_or_wrong() {
        let (_folder, disk) = disk(1 << 20);
        disk.write(&key("x"), b"program");
        let path = disk.path(&key("x"));
        let whole = fs::read(&path).unwrap();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            assert!(matches!(disk.read(&key("x")), Found::Unusable(_)), "{len} bytes");
        }
        for place in 0..whole.len() {
            let mut wrong = whole.clone();
            wrong[place] ^= 1;
            fs::write(&path, wrong).unwrap();
            assert!(matches!(disk.read(&key("x")), Found::Unusable(_)), "byte {place}");
        }
        fs::write(&path, [&*whole, b"x"].concat()).unwrap();
        assert!(matches!(disk.read(&key("x")), Found::Unusable(_)));
        fs::write(&path, whole).unwrap();
        assert_eq!(disk.read(&key("x")), Found::Program(b"program".to_vec()));
    }

    #[test]
    fn the_oldest_files_go_when_there_are_too_many_bytes() {
        let (_folder, disk) = disk(20_000);
        let texts: Vec<String> = (0..15).map(|number| format!("text {number}")).collect();
        for (place, text) in texts.iter().enumerate() {
            disk.write(&key(text), &[7; 1000]);
            let file = File::options().write(true).open(disk.path(&key(text))).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(36_000 - 60 * place as u64)).unwrap();
        }
        let old = |name: &str| {
            let path = disk.folder.join(name);
            let file = File::create(&path).unwrap();
            file.set_modified(SystemTime::now() - 2 * ABANDONED).unwrap();
            path
        };
        let letters = "0f".repeat(LETTERS / 2);
        let abandoned = old(&format!("{letters}.1-1.tmp"));
        let foreign = [
            "notes.txt".to_owned(),
            "draft.tmp".to_owned(),
            "kernel.program".to_owned(),
            format!("{letters}.program.tmp.bak"),
            format!("{letters}x.program"),
            format!("{}.program", "0F".repeat(LETTERS / 2)),
            format!("{letters}tmp"),
        ];
        let foreign = foreign.map(|name| old(&name));
        let is_there = |text: &String| disk.read(&key(text)) != Found::Nothing;
        assert!(texts.iter().all(is_there));
        disk.write(&key("last"), &[7; 8000]);
        assert!(!is_there(&texts[0]) && is_there(&texts[14]) && is_there(&"last".to_owned()));
        let first = texts.iter().position(is_there).unwrap();
        assert!(texts[first..].iter().all(is_there), "the oldest go first");
        let files = fs::read_dir(&disk.folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        assert!(files.sum::<u64>() <= 15_000);
        assert!(!abandoned.exists());
        assert!(foreign.iter().all(|path| path.exists()), "{foreign:?}");
        // A second process counts what is there.
        let other = Disk::new(disk.folder.clone(), 1_000);
        other.write(&key("last"), b"small");
        assert!(!is_there(&texts[14]) && is_there(&"last".to_owned()));
        assert!(foreign.iter().all(|path| path.exists()), "{foreign:?}");
    }

    #[test]
    fn an_old_file_that_is_used_is_young_again() {
        let (_folder, disk) = disk(1 << 20);
        disk.write(&key("x"), b"program");
        let file = File::options().write(true).open(disk.path(&key("x"))).unwrap();
        file.set_modified(SystemTime::now() - 2 * FRESH).unwrap();
        disk.read(&key("x"));
        assert!(file.metadata().unwrap().modified().unwrap().elapsed().is_ok_and(|age| age < FRESH));
    }

    #[test]
    fn a_folder_that_cannot_be_is_no_error_and_tried_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let disk = Disk::new(file.join("folder"), 1 << 20);
        assert!(!disk.failed.load(Ordering::Relaxed));
        disk.write(&key("x"), b"program");
        assert!(disk.failed.load(Ordering::Relaxed));
        fs::remove_file(&file).unwrap();
        disk.write(&key("x"), b"program");
        assert_eq!(disk.read(&key("x")), Found::Nothing);
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_in_the_place_of_a_file_keeps_no_other_program_out() {
        let (_folder, disk) = disk(1 << 20);
        fs::create_dir_all(disk.path(&key("x"))).unwrap();
        disk.write(&key("x"), b"program");
        assert!(matches!(disk.read(&key("x")), Found::Unusable(_)));
        disk.write(&key("y"), b"program");
        assert_eq!(disk.read(&key("y")), Found::Program(b"program".to_vec()));
        // Nothing is left of the one that could not be written.
        assert_eq!(fs::read_dir(&disk.folder).unwrap().count(), 2);
    }

    #[cfg(unix)]
    #[test]
    fn what_others_may_write_is_not_used() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let (folder, disk) = disk(1 << 20);
        disk.write(&key("x"), b"program");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&disk.folder), 0o700);
        assert_eq!(mode(&folder.path().join("a")), 0o700);
        // Not by the mask of the process, which may let a group write.
        assert_eq!(mode(&disk.path(&key("x"))), 0o600);
        let set = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        let found = |disk: &Disk| disk.read(&key("x"));
        let path = disk.path(&key("x"));
        set(&path, 0o666);
        assert!(matches!(found(&disk), Found::Unusable(reason) if reason.contains("666")));
        set(&path, 0o600);
        assert_eq!(found(&disk), Found::Program(b"program".to_vec()));
        set(&disk.folder, 0o777);
        assert_eq!(found(&disk), Found::Nothing);
        assert!(disk.warned.load(Ordering::Relaxed));
        set(&disk.folder, 0o700);
        assert_eq!(found(&disk), Found::Program(b"program".to_vec()));
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(disk.path(&key("x")), &elsewhere).unwrap();
        symlink(&elsewhere, disk.path(&key("x"))).unwrap();
        assert!(matches!(found(&disk), Found::Unusable(_)));
        set(&disk.folder, 0o770);
        disk.write(&key("y"), b"program");
        assert!(disk.failed.load(Ordering::Relaxed));
    }
}
