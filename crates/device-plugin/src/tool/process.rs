//! Starting the process that opens a library, and reading what it writes until it ends.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

use crate::load::LibraryEntry;
use crate::tool::arguments::{CHILD, How};
use crate::tool::child::STEP;

/// How many bytes are kept of what a library prints, and how long a step may be.
const KEPT: u64 = 1 << 20;

/// What came to light of a library.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The version of the interface.
    pub(super) interface: Option<(u32, u32)>,
    pub(super) entries: Vec<Entry>,
    /// Why it could not be opened.
    pub(super) refused: Option<String>,
    pub(super) end: End,
    /// What it printed.
    pub(super) printed: String,
}

/// An entry of a library.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) says: LibraryEntry,
    pub(super) state: State,
    pub(super) devices: Devices,
}

/// Whether the backend of an entry loads.
#[derive(Debug)]
pub(super) enum State {
    /// It was not tried, or the process ended meanwhile.
    Unknown,
    /// The functions of each table that are there.
    Loaded(Vec<(String, Vec<String>)>),
    Failed(Failed),
}

#[derive(Debug)]
pub(super) enum Devices {
    Unknown,
    /// How many there are, and the names of the first.
    Known(u64, Vec<String>),
    Failed(Failed),
}

#[derive(Debug)]
pub(super) struct Failed {
    pub(super) message: String,
    /// This machine lacks something, which is no mistake of the library.
    pub(super) unavailable: bool,
}

/// How the process ended.
#[derive(Debug, Default)]
pub(super) enum End {
    /// The process ended as it should.
    #[default]
    Complete,
    /// The library ended it, at this step.
    Early(String, ExitStatus),
    /// It took too long, at this step.
    TimedOut(String),
    /// It could not be started, or watched.
    Unknown(io::Error),
}

impl End {
    /// What is wrong with the end of the process that opened a library, and what to do. Nothing, if it ended
    /// as it should.
    pub(super) fn describe(&self, limit: Duration) -> Option<(String, String)> {
        const DEBUG: &str = "a program that uses it ends in the same way: open the library in a debugger";
        match self {
            Self::Complete => None,
            Self::Early(during, status) => {
                let status = status.to_string();
                // Whether there is a core dump depends on the machine.
                let status = status.trim_end_matches(" (core dumped)");
                Some((format!("the library ended the process while {during} ({status})"), DEBUG.to_owned()))
            }
            Self::TimedOut(during) => Some((
                format!("{} seconds were over while {during}", limit.as_secs_f64()),
                "if it is only slow, `--time-limit` gives it more time; otherwise open it in a debugger"
                    .to_owned(),
            )),
            Self::Unknown(error) => {
                Some((format!("cannot start the process that opens the library: {error}"), String::new()))
            }
        }
    }
}

/// Opens a library in its own process.
pub(super) fn inspect(library: &Path, how: How, limit: Duration) -> Seen {
    watch(library, how, limit).unwrap_or_else(|error| Seen { end: End::Unknown(error), ..Seen::default() })
}

fn watch(library: &Path, how: How, limit: Duration) -> io::Result<Seen> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([CHILD, how.name()])
        .arg(library)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().map(Heard::listen);
    let errors = child.stderr.take().map(Heard::listen);
    let status = wait(&mut child, limit);
    let [output, errors] =
        [output.map(Heard::lines), errors.map(Heard::lines)].map(Option::unwrap_or_default);
    let mut seen = Seen { printed: errors.printed + &output.printed, ..Seen::default() };
    let mut during = "the library was opened".to_owned();
    let mut is_complete = false;
    for line in output.steps.lines() {
        let Ok(step) = serde_json::from_str::<Value>(line) else { continue };
        is_complete |= step["step"] == "end";
        if let Some(next) = seen.apply(&step) {
            during = next;
        }
    }
    seen.end = match status? {
        None => End::TimedOut(during),
        Some(status) if is_complete && status.success() => End::Complete,
        Some(status) => End::Early(during, status),
    };
    Ok(seen)
}

/// Waits for the end of a process, and ends it when the time is up. Its status is `None` then.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(None) if start.elapsed() < limit => thread::sleep(Duration::from_millis(5)),
            Ok(Some(status)) => return Ok(Some(status)),
            result => {
                child.kill()?;
                child.wait()?;
                return result;
            }
        }
    }
}

/// What a thread reads from a process, which waits when a pipe is full.
struct Heard {
    lines: Arc<Mutex<Lines>>,
    end: Receiver<()>,
}

/// What is kept of it.
#[derive(Clone, Debug, Default)]
struct Lines {
    /// The steps, without what they begin with.
    steps: String,
    /// The start of everything else.
    printed: String,
}

impl Heard {
    fn listen<R: Read + Send + 'static>(from: R) -> Self {
        let (lines, (sender, end)) = (Arc::<Mutex<Lines>>::default(), mpsc::channel());
        let kept = Arc::clone(&lines);
        thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            while matches!(from.by_ref().take(KEPT).read_until(b'\n', &mut line), Ok(1..)) {
                kept.lock().add(&line);
                line.clear();
            }
            // Nothing receives it where the process has left the pipe to another one.
            let _ = sender.send(());
        });
        Self { lines, end }
    }

    /// What has come, after the end of the process. Another process that the library has started may keep the
    /// pipe open.
    fn lines(self) -> Lines {
        let _ = self.end.recv_timeout(Duration::from_secs(2));
        self.lines.lock().clone()
    }
}

impl Lines {
    fn add(&mut self, line: &[u8]) {
        match line.strip_prefix(STEP.as_bytes()) {
            Some(step) => self.steps += &String::from_utf8_lossy(step),
            None if (self.printed.len() as u64) < KEPT => self.printed += &String::from_utf8_lossy(line),
            None => {}
        }
    }
}

impl Seen {
    /// Adds a step. Returns what comes next.
    fn apply(&mut self, step: &Value) -> Option<String> {
        let text = |field: &str| step[field].as_str().unwrap_or_default().to_owned();
        let failed =
            || Failed { message: text("message"), unavailable: step["unavailable"] == Value::Bool(true) };
        let at = step["at"].as_u64().and_then(|at| usize::try_from(at).ok());
        let entry = at.and_then(|at| self.entries.get_mut(at));
        match (step["step"].as_str()?, entry) {
            ("refused", _) => self.refused = Some(text("message")),
            ("opened", _) => {
                let version = |field: &str| step[field].as_u64().and_then(|version| version.try_into().ok());
                self.interface = version("major").zip(version("minor"));
                self.entries = list(&step["entries"]).map(Entry::new).collect();
            }
            ("loading", Some(entry)) => {
                return Some(format!("the backend `{}` was loaded", entry.says.name));
            }
            ("loaded", Some(entry)) => {
                let names = |functions| list(functions).map(string).collect();
                let tables = step["tables"].as_object().into_iter().flatten();
                entry.state =
                    State::Loaded(tables.map(|(name, value)| (name.clone(), names(value))).collect());
                return Some(format!("the devices of the backend `{}` were counted", entry.says.name));
            }
            ("failed", Some(entry)) => entry.state = State::Failed(failed()),
            ("devices", Some(entry)) => {
                let count = step["count"].as_u64().unwrap_or_default();
                entry.devices = Devices::Known(count, list(&step["names"]).map(string).collect());
            }
            ("devices_failed", Some(entry)) => entry.devices = Devices::Failed(failed()),
            _ => {}
        }
        Some("the process ended".to_owned())
    }
}

impl Entry {
    fn new(entry: &Value) -> Self {
        let text = |field: &str| string(&entry[field]);
        let says = LibraryEntry {
            group: text("group"),
            name: text("name"),
            package: text("package"),
            version: text("version"),
            requires: entry["requires"].as_u64().and_then(|minor| minor.try_into().ok()).unwrap_or(0),
            options: list(&entry["options"]).map(|option| (string(&option[0]), string(&option[1]))).collect(),
        };
        Self { says, state: State::Unknown, devices: Devices::Unknown }
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
