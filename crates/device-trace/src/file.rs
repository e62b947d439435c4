//! The file that a trace goes to, compressed or not.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Closes the array of the trace.
const END: &[u8] = b"]\n";

/// A file that is a whole JSON document after each [`finish`](Self::finish), and readable at any time.
pub(crate) struct TraceFile {
    out: Out,
    /// Where the array ended, after [`finish`](Self::finish): what is written next begins there.
    end: Option<u64>,
}

enum Out {
    Plain(BufWriter<File>),
    /// `None` only while a member is exchanged for the next.
    Compressed(Option<GzEncoder<BufWriter<File>>>),
}

impl TraceFile {
    /// Creates the file, which replaces an older one. It is compressed if its name ends with `.gz`.
    ///
    /// # Errors
    ///
    /// Also if another trace goes to this file, or if it is a pipe that no process reads.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = BufWriter::new(open(path)?);
        let is_compressed = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        let out = if is_compressed { Out::Compressed(Some(encoder(file))) } else { Out::Plain(file) };
        Ok(Self { out, end: None })
    }

    /// How many bytes of it are on disk.
    pub(crate) fn len(&mut self) -> io::Result<u64> {
        Ok(self.out.file()?.metadata()?.len())
    }

    /// Ends the array and writes everything out. The next write takes the end away again, but for a pipe,
    /// whose array stays open.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if self.end.is_some() {
            return Ok(());
        }
        self.out.finish()?;
        let file = self.out.file()?;
        if file.metadata()?.is_file() {
            let end = file.stream_position()?;
            self.out.write_all(END)?;
            self.out.finish()?;
            self.end = Some(end);
        }
        Ok(())
    }
}

impl Out {
    fn file(&mut self) -> io::Result<&mut File> {
        match self {
            Self::Plain(file) => Ok(file.get_mut()),
            Self::Compressed(Some(member)) => Ok(member.get_mut().get_mut()),
            Self::Compressed(None) => Err(failed()),
        }
    }

    /// Writes everything out and ends the compressed stream. What follows is a further member of the file, as
    /// gzip allows.
    fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Compressed(place) => {
                let mut file = place.take().ok_or_else(failed)?.finish()?;
                let flushed = file.flush();
                *place = Some(encoder(file));
                flushed
            }
        }
    }
}

fn failed() -> io::Error {
    io::Error::other("an earlier write has failed")
}

/// Opens a file, empties it, and keeps other traces away from it until it is closed. A program that is traced
/// by a variable may start others, which inherit the variable.
#[cfg(unix)]
fn open(path: &Path) -> io::Result<File> {
    use std::fs::{TryLockError, metadata};
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

    let mut options = File::options();
    options.write(true).create(true).truncate(false);
    // Otherwise the open of a pipe would wait for a reader.
    let file = options.clone().custom_flags(libc::O_NONBLOCK).open(path).map_err(|error| {
        let is_pipe = metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
        if is_pipe && error.raw_os_error() == Some(libc::ENXIO) {
            io::Error::new(error.kind(), "it is a pipe, and no process reads it")
        } else {
            error
        }
    })?;
    if !file.metadata()?.is_file() {
        // Writes to a pipe wait for its reader. `file` stays open meanwhile, so that the reader sees no end.
        return options.open(path);
    }
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Err(in_use()),
        // A file system without locks.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    file.set_len(0)?;
    Ok(file)
}

/// The same. A lock would keep readers away too, and the sharing mode does not.
#[cfg(windows)]
fn open(path: &Path) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt;

    const FILE_SHARE_READ: u32 = 1;
    const FILE_SHARE_DELETE: u32 = 4;
    const ERROR_SHARING_VIOLATION: i32 = 32;

    let mut options = File::options();
    options.write(true).create(true).truncate(true).share_mode(FILE_SHARE_READ | FILE_SHARE_DELETE);
    options.open(path).map_err(|error| match error.raw_os_error() {
        Some(ERROR_SHARING_VIOLATION) => in_use(),
        _ => error,
    })
}

#[cfg(not(any(unix, windows)))]
fn open(path: &Path) -> io::Result<File> {
    File::create(path)
}

#[cfg(any(unix, windows))]
fn in_use() -> io::Error {
    io::Error::other(
        "another process has it open, perhaps for its own trace; `%p` in the name stands for the number of the \
         process, as in `trace-%p.json`",
    )
}

fn encoder(file: BufWriter<File>) -> GzEncoder<BufWriter<File>> {
    GzEncoder::new(file, Compression::fast())
}

impl Write for TraceFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(end) = self.end.take() {
            let file = self.out.file()?;
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        // An encoder that has nothing to compress would begin a member behind the end.
        if self.end.is_some() { Ok(()) } else { self.out.flush() }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Compressed(Some(file)) => file.write(bytes),
            Self::Compressed(None) => Err(failed()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Compressed(Some(file)) => file.flush(),
            Self::Compressed(None) => Ok(()),
        }
    }
}
