//! A trace in Chrome's format, as a file that grows while the program runs.
//!
//! The format is described in *Trace Event Format*, by the authors of Chrome's tracing. It is the form of an
//! array, whose end may be missing: so tools read a file whenever the program ends.

use std::collections::HashMap;
use std::fmt;
use std::fmt::Write as _;
use std::io;
use std::io::Write;
use std::time::{Duration, Instant};

use device_registry::Device;
use device_registry::activity::{
    Activity, Clock, Id, MemoryInUse, Name, Outcome, Place, Record, Thread, Work,
};

/// The process of the host. Each device is another one.
const HOST: usize = 1;

/// Writes events to a file.
pub(crate) struct Writer<W> {
    out: W,
    program: String,
    /// The time of the first event.
    begin: Option<Instant>,
    /// The processes of the devices, in the order in which they were first seen.
    devices: Vec<Device>,
    /// The threads and streams that have a name, and that name.
    named: HashMap<(usize, u64), String>,
    spans: HashMap<Id, Name>,
    /// The work that has not ended.
    pending: HashMap<Id, Pending>,
    /// When the last work of each stream ended.
    ended: HashMap<(usize, u64), Instant>,
    /// The event that is being written, and its further fields: room that is reused.
    line: String,
    args: String,
}

struct Pending {
    what: Work,
    enqueued: Instant,
    span: Option<Name>,
    begun: bool,
}

/// The fields of an event that depend on its kind, as JSON. Their names need no escapes.
struct Args(String);

impl Args {
    fn number(mut self, name: &str, value: u64) -> Self {
        self.name(name);
        let _ = write!(self.0, "{value}");
        self
    }

    fn text(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.name(name);
        quote(&mut self.0, value);
        self
    }

    fn span(self, span: Option<&Name>) -> Self {
        match span {
            Some(name) => self.text("span", name),
            None => self,
        }
    }

    fn place(mut self, name: &str, place: Place) -> Self {
        self = self.text(name, place.device);
        if let Some(allocation) = place.allocation {
            let comma = if self.0.is_empty() { "" } else { "," };
            let _ = write!(self.0, "{comma}\"{name} allocation\":{allocation}");
        }
        self
    }

    fn work(mut self, what: &Work) -> Self {
        if let Some(bytes) = what.bytes() {
            self = self.number("bytes", bytes as u64);
        }
        match *what {
            Work::Write { to, .. } | Work::Fill { to, .. } => self.place("to", to),
            Work::Read { from, .. } => self.place("from", from),
            Work::Copy { from, to, .. } => self.place("from", from).place("to", to),
            Work::WaitForEvent { event: Some(event), .. } => self.number("event", event.get()),
            _ => self,
        }
    }

    fn name(&mut self, name: &str) {
        let comma = if self.0.is_empty() { "" } else { "," };
        let _ = write!(self.0, "{comma}\"{name}\":");
    }
}

/// Adds a text as JSON.
fn quote(out: &mut String, text: impl fmt::Display) {
    struct Escaped<'a>(&'a mut String);

    impl fmt::Write for Escaped<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for c in text.chars() {
                match c {
                    '"' | '\\' => self.0.extend(['\\', c]),
                    c if c.is_control() => write!(self.0, "\\u{:04x}", u32::from(c))?,
                    c => self.0.push(c),
                }
            }
            Ok(())
        }
    }

    out.push('"');
    // Writing to a text cannot fail.
    let _ = write!(Escaped(out), "{text}");
    out.push('"');
}

/// A text as JSON.
fn quoted(text: impl fmt::Display) -> String {
    let mut quoted = String::new();
    quote(&mut quoted, text);
    quoted
}

/// The kind of work, by which tools colour it and add it up.
fn category(what: &Work) -> &'static str {
    match what {
        Work::Write { .. } => "write",
        Work::Read { .. } => "read",
        Work::Copy { .. } => "copy",
        Work::Fill { .. } => "fill",
        Work::Launch { .. } => "launch",
        Work::HostCall => "host call",
        Work::Record | Work::WaitForEvent { .. } => "event",
        Work::Wait(_) => "wait",
        _ => "other",
    }
}

impl<W: Write> Writer<W> {
    /// Begins a trace of the program with this name.
    pub(crate) fn new(out: W, program: &str) -> io::Result<Self> {
        let mut writer = Self {
            out,
            program: program.to_owned(),
            begin: None,
            devices: Vec::new(),
            named: HashMap::new(),
            spans: HashMap::new(),
            pending: HashMap::new(),
            ended: HashMap::new(),
            line: String::new(),
            args: String::new(),
        };
        writer.begin_file()?;
        Ok(writer)
    }

    /// Writes what follows to another file, which has all names once more. Returns the file before.
    pub(crate) fn go_on(&mut self, out: W) -> io::Result<W> {
        let before = std::mem::replace(&mut self.out, out);
        self.begin_file()?;
        for place in 0..self.devices.len() {
            self.name_process(HOST + 1 + place, self.devices[place])?;
        }
        for (place, name) in std::mem::take(&mut self.named) {
            self.name(place, &name)?;
        }
        Ok(before)
    }

    fn begin_file(&mut self) -> io::Result<()> {
        let program = quoted(&self.program);
        writeln!(self.out, r#"[{{"ph":"M","name":"process_name","pid":{HOST},"args":{{"name":{program}}}}}"#)
    }

    /// No fields yet.
    fn args(&mut self) -> Args {
        let mut args = std::mem::take(&mut self.args);
        args.clear();
        Args(args)
    }

    pub(crate) fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// Adds a note that records of a thread were lost.
    pub(crate) fn lost(&mut self, time: Instant, thread: &Thread, count: u64) -> io::Result<()> {
        self.name_thread(thread)?;
        let args = self.args().number("count", count);
        self.event("i", "lost records", (HOST, thread.number), time, format_args!(r#","s":"t""#), args)
    }

    /// Adds a record. Records of all threads come in the order of their times.
    pub(crate) fn record(&mut self, thread: &Thread, record: &Record) -> io::Result<()> {
        self.name_thread(thread)?;
        let host = (HOST, thread.number);
        let time = record.time;
        let device = record.device.map_or(Ok(HOST), |device| self.process(device))?;
        let stream = (device, record.stream.map_or(0, Id::get));
        if let Some(id) = record.stream
            && !self.named.contains_key(&stream)
        {
            self.name(stream, &format!("stream {id}"))?;
        }
        match record.activity {
            Activity::Loaded { took, failed, .. } => self.took("load", host, record, took, failed),
            Activity::Opened { took, failed, .. } => self.took("open", host, record, took, failed),
            Activity::Closed => self.instant("closed", (device, 0), time),
            Activity::Lost => self.instant("lost", (device, 0), time),
            Activity::Reset => self.instant("reset", (device, 0), time),
            Activity::StreamLabeled { label, .. } => self.name(stream, &label),
            Activity::Allocated { allocation, bytes, reused, memory, .. } => {
                let span = record.span.and_then(|span| self.spans.get(&span)).copied();
                let args = self.args().number("bytes", bytes as u64).number("reused", reused.into());
                let place = (device, thread.number);
                let args = args.span(span.as_ref());
                let id = format_args!(r#","id":"{allocation}""#);
                self.event("N", "allocation", place, time, id, args)?;
                self.memory(device, time, memory)
            }
            Activity::Freed { allocation, bytes, memory, .. } => {
                let args = self.args().number("bytes", bytes as u64);
                let id = format_args!(r#","id":"{allocation}""#);
                self.event("D", "allocation", (device, thread.number), time, id, args)?;
                self.memory(device, time, memory)
            }
            Activity::AllocationFailed { bytes, memory, .. } => {
                let args = self.args().number("bytes", bytes as u64);
                self.event("i", "out of memory", (device, 0), time, format_args!(r#","s":"p""#), args)?;
                self.memory(device, time, memory)
            }
            Activity::Enqueued { work, what, .. } => {
                let span = record.span.and_then(|span| self.spans.get(&span)).copied();
                let args = self.args().number("work", work.get()).number("stream", stream.1);
                let more = format_args!(r#","cat":"enqueue","dur":0"#);
                self.event("X", format_args!("enqueue {what}"), host, time, more, args)?;
                let flow = format_args!(r#","cat":"enqueue","id":"{work}""#);
                let args = self.args();
                self.event("s", "enqueue", host, time, flow, args)?;
                let _ = self.pending.insert(work, Pending { what, enqueued: time, span, begun: false });
                Ok(())
            }
            Activity::Begun { work, clock: Clock::Host, .. } => self.begin_work(work, stream, time),
            // The event of its end contains its beginning.
            Activity::Begun { work, clock, .. } => {
                if let Some(pending) = self.pending.get_mut(&work) {
                    pending.enqueued =
                        if matches!(clock, Clock::Device { .. }) { time } else { pending.enqueued };
                    pending.begun = true;
                }
                Ok(())
            }
            Activity::Ended { work, clock, outcome, .. } => self.end_work(work, stream, time, clock, outcome),
            Activity::Called { what, .. } => {
                let mut args = self.args();
                if let Some(device) = record.device {
                    args = args.text("device", device);
                }
                let category = category(&what);
                self.event("B", what, host, time, format_args!(r#","cat":"{category}""#), args.work(&what))
            }
            Activity::Returned { failed, .. } => {
                let args = self.args();
                let args = if failed { args.number("failed", 1) } else { args };
                self.event("E", "", host, time, format_args!(""), args)
            }
            Activity::Entered { span, name, .. } => {
                self.spans.insert(span, name);
                let args = self.args();
                self.event("B", name, host, time, format_args!(r#","cat":"span""#), args)
            }
            Activity::Left { span, .. } => {
                self.spans.remove(&span);
                let args = self.args();
                self.event("E", "", host, time, format_args!(""), args)
            }
            // Its first work names it.
            Activity::StreamCreated { .. } => Ok(()),
            // From a later version of the core.
            _ => Ok(()),
        }
    }

    fn begin_work(&mut self, work: Id, stream: (usize, u64), time: Instant) -> io::Result<()> {
        let Some(pending) = self.pending.get_mut(&work) else { return Ok(()) };
        pending.begun = true;
        let what = pending.what;
        let span = pending.span;
        let category = category(&what);
        let args = self.args().number("work", work.get()).work(&what).span(span.as_ref());
        self.event("B", what, stream, time, format_args!(r#","cat":"{category}""#), args)?;
        self.arrow(work, stream, time)
    }

    /// The end of the arrow from where work was enqueued.
    fn arrow(&mut self, work: Id, stream: (usize, u64), time: Instant) -> io::Result<()> {
        let args = self.args();
        let flow = format_args!(r#","cat":"enqueue","bp":"e","id":"{work}""#);
        self.event("f", "enqueue", stream, time, flow, args)
    }

    fn end_work(
        &mut self,
        work: Id,
        stream: (usize, u64),
        time: Instant,
        clock: Clock,
        outcome: Outcome,
    ) -> io::Result<()> {
        let Some(Pending { what, enqueued, span, begun }) = self.pending.remove(&work) else { return Ok(()) };
        let mut args = self.args();
        if outcome != Outcome::Done {
            args = args.text("outcome", if outcome == Outcome::Skipped { "skipped" } else { "failed" });
        }
        let last = self.ended.insert(stream, time);
        if begun && clock == Clock::Host {
            return self.event("E", "", stream, time, format_args!(""), args);
        }
        // It began after it was enqueued, and after the work before it.
        let begin = last.map_or(enqueued, |last| last.max(enqueued)).min(time);
        args = args.number("work", work.get()).work(&what).span(span.as_ref());
        args = match clock {
            Clock::Device { error, .. } => {
                args.text("clock", "device").number("error ns", nanoseconds(error))
            }
            Clock::Noticed => args.text("clock", "noticed"),
            _ => args,
        };
        let category = category(&what);
        let took = Microseconds(time - begin);
        self.event("X", what, stream, begin, format_args!(r#","cat":"{category}","dur":{took}"#), args)?;
        self.arrow(work, stream, begin)
    }

    /// A step that took some time, and has ended now.
    fn took(
        &mut self,
        name: &str,
        place: (usize, u64),
        record: &Record,
        took: Duration,
        failed: bool,
    ) -> io::Result<()> {
        let of = record.device.map(|device| device.to_string()).unwrap_or_default();
        let begin = record.time.checked_sub(took).unwrap_or(record.time);
        let args = self.args().text("device", &of).number("failed", failed.into());
        let took = Microseconds(took);
        let name = format_args!("{name} {of}");
        self.event("X", name, place, begin, format_args!(r#","cat":"device","dur":{took}"#), args)
    }

    fn instant(&mut self, name: &str, place: (usize, u64), time: Instant) -> io::Result<()> {
        let args = self.args();
        self.event("i", name, place, time, format_args!(r#","s":"p""#), args)
    }

    fn memory(&mut self, device: usize, time: Instant, memory: MemoryInUse) -> io::Result<()> {
        let args = self.args().number("allocated", memory.allocated).number("reserved", memory.reserved);
        self.event("C", "memory", (device, 0), time, format_args!(""), args)
    }

    /// The process of a device.
    fn process(&mut self, device: Device) -> io::Result<usize> {
        if let Some(place) = self.devices.iter().position(|&other| other == device) {
            return Ok(HOST + 1 + place);
        }
        self.devices.push(device);
        let process = HOST + self.devices.len();
        self.name_process(process, device)?;
        Ok(process)
    }

    fn name_process(&mut self, process: usize, device: Device) -> io::Result<()> {
        let name = quoted(device);
        writeln!(self.out, r#",{{"ph":"M","name":"process_name","pid":{process},"args":{{"name":{name}}}}}"#)
    }

    fn name_thread(&mut self, thread: &Thread) -> io::Result<()> {
        let place = (HOST, thread.number);
        if self.named.contains_key(&place) {
            return Ok(());
        }
        let name = thread.name.as_deref().map_or_else(|| format!("thread {}", thread.number), str::to_owned);
        self.name(place, &name)
    }

    /// Names a thread or a stream.
    fn name(&mut self, (process, thread): (usize, u64), name: &str) -> io::Result<()> {
        self.named.insert((process, thread), name.to_owned());
        let name = quoted(name);
        writeln!(
            self.out,
            r#",{{"ph":"M","name":"thread_name","pid":{process},"tid":{thread},"args":{{"name":{name}}}}}"#
        )
    }

    /// Writes one event. `more` are further fields, each after a comma.
    fn event(
        &mut self,
        phase: &str,
        name: impl fmt::Display,
        (process, thread): (usize, u64),
        time: Instant,
        more: fmt::Arguments<'_>,
        Args(args): Args,
    ) -> io::Result<()> {
        let begin = *self.begin.get_or_insert(time);
        // What took long may have begun before the first event.
        let (sign, since) = match time.checked_duration_since(begin) {
            Some(since) => ("", since),
            None => ("-", begin - time),
        };
        let line = &mut self.line;
        line.clear();
        let _ = write!(line, ",{{\"ph\":\"{phase}\",\"name\":");
        quote(line, name);
        let ts = Microseconds(since);
        let _ = writeln!(
            line,
            ",\"pid\":{process},\"tid\":{thread},\"ts\":{sign}{ts}{more},\"args\":{{{args}}}}}"
        );
        self.args = args;
        self.out.write_all(line.as_bytes())
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Microseconds with three digits after the point, as the format has them.
struct Microseconds(Duration);

impl fmt::Display for Microseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = nanoseconds(self.0);
        write!(f, "{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
    }
}
