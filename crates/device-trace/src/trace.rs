//! The observer that writes a trace to a file.

use std::ffi::OsString;
use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use device_registry::activity::{self, Batch, Observation, Observer};
use device_registry::backend::{LoadFailure, path_variable};
use parking_lot::Mutex;

use crate::chrome::Writer;
use crate::file::TraceFile;
use crate::order::{Entry, Order};

/// The variable with the name of the file.
pub(crate) const VARIABLE: &str = "DEVICE_TRACE";

/// The variable with how many megabytes the trace may take.
const LIMIT: &str = "DEVICE_TRACE_MEGABYTES";

/// How long bytes may wait until they are in the file: what a process that is killed loses.
const EVERY: Duration = Duration::from_millis(100);

/// Writes a trace of everything from now on to a file, until the returned value is dropped. The variable
/// `DEVICE_TRACE` does the same for the whole run of a program.
///
/// `DEVICE_TRACE_MEGABYTES=100` keeps the last 50 to 100 megabytes, for both. The older part is in a file
/// beside, whose name ends with `.before`; [`Trace::read`](crate::Trace::read) reads both.
///
/// The file replaces an older one. `%p` in its name is the number of the process. If the name ends with
/// `.gz`, the file is compressed.
///
/// ```
/// use device_registry::device;
///
/// # let folder = tempfile::tempdir()?;
/// # let file = folder.path().join("trace.json.gz");
/// let trace = device_trace::write_to(&file)?;
/// device("cpu")?.allocate(64)?.write(0, &[1; 64])?;
/// drop(trace);
/// assert!(file.exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If the file cannot be created or another trace goes to it, the limit is not a number, or the system cannot
/// start a thread.
pub fn write_to(file: impl AsRef<Path>) -> io::Result<Observation> {
    activity::observe("trace", TraceObserver::create(file.as_ref())?)
}

/// Loads the observer of the variable.
pub(crate) fn load() -> Result<Box<dyn Observer>, LoadFailure> {
    let file = match path_variable(VARIABLE) {
        Ok(file) => file.filter(|file| !file.is_empty()),
        Err(elevated) => return Err(LoadFailure::new(format_args!("{VARIABLE} is ignored: {elevated}"))),
    };
    let Some(file) = file.map(PathBuf::from) else {
        return Err(LoadFailure::unavailable(format_args!("{VARIABLE} is not set: it names the file")));
    };
    match TraceObserver::create(&file) {
        Ok(observer) => Ok(Box::new(observer)),
        Err(error) => {
            let what = format!("{VARIABLE}: cannot create `{}`", file.display());
            Err(LoadFailure::new(what).with_source(error))
        }
    }
}

struct TraceObserver(Mutex<State>);

struct State {
    path: PathBuf,
    order: Order,
    /// After how many bytes another file begins.
    most: Option<u64>,
    /// `None` after an error.
    writer: Option<Writer<TraceFile>>,
    written: Instant,
}

impl TraceObserver {
    fn create(path: &Path) -> io::Result<Self> {
        let path = with_process(path);
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let most = limit()?.map(|limit| limit / 2);
        let writer = Some(Writer::new(TraceFile::create(&path)?, &program)?);
        // It may be left from an older trace.
        match std::fs::remove_file(before(&path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let order = Order::default();
        let written = Instant::now();
        Ok(Self(Mutex::new(State { path, order, most, writer, written })))
    }
}

/// The most bytes of a trace, if there is a limit.
fn limit() -> io::Result<Option<u64>> {
    let Some(text) = std::env::var_os(LIMIT).filter(|text| !text.is_empty()) else { return Ok(None) };
    let megabytes = text.to_str().and_then(|text| text.trim().parse::<u64>().ok());
    match megabytes.filter(|&megabytes| megabytes > 0).and_then(|megabytes| megabytes.checked_mul(1 << 20)) {
        Some(bytes) => Ok(Some(bytes)),
        None => {
            Err(io::Error::other(format!("invalid {LIMIT}: expected a number of megabytes, found {text:?}")))
        }
    }
}

/// The file before the one of this path, with the earlier part of a long trace.
pub(crate) fn before(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".before");
    name.into()
}

/// The path with the number of the process in place of `%p`.
fn with_process(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) => OsString::from(text.replace("%p", &std::process::id().to_string())).into(),
        None => path.to_owned(),
    }
}

impl State {
    /// Writes the records whose turn has come, or all. After an error there is no file any more: a full disk
    /// is reported once.
    fn write(&mut self, all: bool) {
        let Some(writer) = &mut self.writer else {
            self.order = Order::default();
            return;
        };
        let order = &mut self.order;
        let mut write = || {
            while let Some((time, thread, entry)) = if all { order.take() } else { order.next() } {
                match entry {
                    Entry::Record(record) => writer.record(&thread, &record)?,
                    Entry::Lost(count) => writer.lost(time, &thread, count)?,
                }
            }
            if all {
                writer.out().finish()
            } else if self.written.elapsed() > EVERY {
                self.written = Instant::now();
                writer.out().flush()?;
                match self.most {
                    Some(most) if writer.out().len()? > most => {
                        writer.out().finish()?;
                        std::fs::rename(&self.path, before(&self.path))?;
                        writer.go_on(TraceFile::create(&self.path)?).map(drop)
                    }
                    _ => Ok(()),
                }
            } else {
                Ok(())
            }
        };
        if let Err(error) = write() {
            log::error!("the trace ends early, as `{}` cannot be written: {error}", self.path.display());
            self.writer = None;
        }
    }
}

impl Observer for TraceObserver {
    fn observe(&self, batch: &Batch) {
        let mut state = self.0.lock();
        state.order.add(batch);
        state.write(false);
    }

    fn flush(&self) {
        self.0.lock().write(true);
    }

    fn wants_device_times(&self) -> bool {
        true
    }
}
