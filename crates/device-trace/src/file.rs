//! The file that a trace goes to, compressed or not.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// A file that is valid after each [`finish`](Self::finish), and readable at any time.
pub(crate) enum TraceFile {
    Plain(BufWriter<File>),
    /// `None` only while a member is exchanged for the next.
    Compressed(Option<GzEncoder<BufWriter<File>>>),
}

impl TraceFile {
    /// Creates the file, which replaces an older one. It is compressed if its name ends with `.gz`.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = BufWriter::new(File::create(path)?);
        let is_compressed = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        Ok(if is_compressed { Self::Compressed(Some(encoder(file))) } else { Self::Plain(file) })
    }

    /// How many bytes of it are on disk.
    pub(crate) fn len(&self) -> io::Result<u64> {
        let file = match self {
            Self::Plain(file) => file.get_ref(),
            Self::Compressed(Some(member)) => member.get_ref().get_ref(),
            Self::Compressed(None) => return Ok(0),
        };
        Ok(file.metadata()?.len())
    }

    /// Writes all out and ends what is compressed. What follows is a further member of the file, as gzip
    /// allows.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Compressed(place) => {
                let Some(member) = place.take() else { return Ok(()) };
                let mut file = member.finish()?;
                let flushed = file.flush();
                *place = Some(encoder(file));
                flushed
            }
        }
    }
}

fn encoder(file: BufWriter<File>) -> GzEncoder<BufWriter<File>> {
    GzEncoder::new(file, Compression::fast())
}

impl Write for TraceFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Compressed(Some(file)) => file.write(bytes),
            Self::Compressed(None) => Err(io::Error::other("an earlier write has failed")),
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
