//! A trace in Chrome's format, as a file that grows while the program runs.
//!
//! The format is described in *Trace Event Format*, by the authors of Chrome's tracing. It is the form of an
//! array, whose end may be missing: so a file is valid whenever the program ends.

use std::collections::HashMap;
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
}

struct Pending {
    what: Work,
    enqueued: Instant,
    span: Option<Name>,
    begun: bool,
}

/// The fields of an event that depend on its kind, as JSON.
struct Args(String);

impl Args {
    fn new() -> Self {
        Self(String::new())
    }

    fn number(mut self, name: &str, value: u64) -> Self {
        self.push(name, &value.to_string());
        self
    }

    fn text(mut self, name: &str, value: &str) -> Self {
        self.push(name, &quoted(value));
        self
    }

    fn span(self, span: Option<&Name>) -> Self {
        match span {
            Some(name) => self.text("span", name),
            None => self,
        }
    }

    fn place(self, name: &str, place: Place) -> Self {
        let named = self.text(name, &place.device.to_string());
        match place.allocation {
            Some(allocation) => named.number(&format!("{name} allocation"), allocation.get()),
            None => named,
        }
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

    fn push(&mut self, name: &str, value: &str) {
        let comma = if self.0.is_empty() { "" } else { "," };
        self.0.push_str(&format!("{comma}{}:{value}", quoted(name)));
    }
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
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
    pub(crate) fn new(mut out: W, program: &str) -> io::Result<Self> {
        writeln!(
            out,
            r#"[{{"ph":"M","name":"process_name","pid":{HOST},"args":{{"name":{}}}}}"#,
            quoted(program)
        )?;
        Ok(Self {
            out,
            begin: None,
            devices: Vec::new(),
            named: HashMap::new(),
            spans: HashMap::new(),
            pending: HashMap::new(),
            ended: HashMap::new(),
        })
    }

    pub(crate) fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// Adds a note that records of a thread were lost.
    pub(crate) fn lost(&mut self, time: Instant, thread: &Thread, count: u64) -> io::Result<()> {
        self.name_thread(thread)?;
        let args = Args::new().number("count", count);
        self.event("i", "lost records", (HOST, thread.number), time, r#","s":"t""#, args)
    }

    /// Adds a record. Those of all threads come in the order of their times.
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
                let args = Args::new().number("bytes", bytes as u64).number("reused", reused.into());
                let id = format!(r#","id":"{allocation}""#);
                self.event("N", "allocation", (device, thread.number), time, &id, args.span(span.as_ref()))?;
                self.memory(device, time, memory)
            }
            Activity::Freed { allocation, bytes, memory, .. } => {
                let args = Args::new().number("bytes", bytes as u64);
                let id = format!(r#","id":"{allocation}""#);
                self.event("D", "allocation", (device, thread.number), time, &id, args)?;
                self.memory(device, time, memory)
            }
            Activity::AllocationFailed { bytes, memory, .. } => {
                let args = Args::new().number("bytes", bytes as u64);
                self.event("i", "out of memory", (device, 0), time, r#","s":"p""#, args)?;
                self.memory(device, time, memory)
            }
            Activity::Enqueued { work, what, .. } => {
                let span = record.span.and_then(|span| self.spans.get(&span)).copied();
                let name = format!("enqueue {what}");
                let args = Args::new().number("work", work.get()).number("stream", stream.1);
                self.event("X", &name, host, time, r#","cat":"enqueue","dur":0"#, args)?;
                let flow = format!(r#","cat":"enqueue","id":"{work}""#);
                self.event("s", "enqueue", host, time, &flow, Args::new())?;
                let _ = self.pending.insert(work, Pending { what, enqueued: time, span, begun: false });
                Ok(())
            }
            Activity::Begun { work, clock: Clock::Host, .. } => self.begin_work(work, stream, time),
            // Its beginning stands in the event of its end.
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
                let of = record.device.map(|device| device.to_string()).unwrap_or_default();
                let category = format!(r#","cat":"{}""#, category(&what));
                let args = Args::new().text("device", &of).work(&what);
                self.event("B", &what.to_string(), host, time, &category, args)
            }
            Activity::Returned { failed, .. } => {
                let args = Args::new().number("failed", failed.into());
                self.event("E", "", host, time, "", args)
            }
            Activity::Entered { span, name, .. } => {
                self.spans.insert(span, name);
                self.event("B", &name, host, time, r#","cat":"span""#, Args::new())
            }
            Activity::Left { span, .. } => {
                self.spans.remove(&span);
                self.event("E", "", host, time, "", Args::new())
            }
            // Of a later version of the core.
            _ => Ok(()),
        }
    }

    fn begin_work(&mut self, work: Id, stream: (usize, u64), time: Instant) -> io::Result<()> {
        let Some(pending) = self.pending.get_mut(&work) else { return Ok(()) };
        pending.begun = true;
        let (name, category) = (pending.what.to_string(), category(&pending.what));
        let args = Args::new().number("work", work.get()).work(&pending.what).span(pending.span.as_ref());
        self.event("B", &name, stream, time, &format!(r#","cat":"{category}""#), args)?;
        self.arrow(work, stream, time)
    }

    /// The end of the arrow from where work was enqueued.
    fn arrow(&mut self, work: Id, stream: (usize, u64), time: Instant) -> io::Result<()> {
        let flow = format!(r#","cat":"enqueue","bp":"e","id":"{work}""#);
        self.event("f", "enqueue", stream, time, &flow, Args::new())
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
        let mut args = Args::new();
        if outcome != Outcome::Done {
            args = args.text("outcome", if outcome == Outcome::Skipped { "skipped" } else { "failed" });
        }
        let last = self.ended.insert(stream, time);
        if begun && clock == Clock::Host {
            return self.event("E", "", stream, time, "", args);
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
        let took = microseconds(time - begin);
        let more = format!(r#","cat":"{}","dur":{took}"#, category(&what));
        self.event("X", &what.to_string(), stream, begin, &more, args)?;
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
        let more = format!(r#","cat":"device","dur":{}"#, microseconds(took));
        let begin = record.time.checked_sub(took).unwrap_or(record.time);
        let args = Args::new().text("device", &of).number("failed", failed.into());
        self.event("X", &format!("{name} {of}"), place, begin, &more, args)
    }

    fn instant(&mut self, name: &str, place: (usize, u64), time: Instant) -> io::Result<()> {
        self.event("i", name, place, time, r#","s":"p""#, Args::new())
    }

    fn memory(&mut self, device: usize, time: Instant, memory: MemoryInUse) -> io::Result<()> {
        let args = Args::new().number("allocated", memory.allocated).number("reserved", memory.reserved);
        self.event("C", "memory", (device, 0), time, "", args)
    }

    /// The process of a device.
    fn process(&mut self, device: Device) -> io::Result<usize> {
        if let Some(place) = self.devices.iter().position(|&other| other == device) {
            return Ok(HOST + 1 + place);
        }
        self.devices.push(device);
        let process = HOST + self.devices.len();
        let name = quoted(&device.to_string());
        writeln!(
            self.out,
            r#",{{"ph":"M","name":"process_name","pid":{process},"args":{{"name":{name}}}}}"#
        )?;
        Ok(process)
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
        name: &str,
        (process, thread): (usize, u64),
        time: Instant,
        more: &str,
        Args(args): Args,
    ) -> io::Result<()> {
        let begin = *self.begin.get_or_insert(time);
        // What took long may have begun before the first event.
        let (sign, since) = match time.checked_duration_since(begin) {
            Some(since) => ("", since),
            None => ("-", begin - time),
        };
        let (name, ts) = (quoted(name), microseconds(since));
        writeln!(
            self.out,
            r#",{{"ph":"{phase}","name":{name},"pid":{process},"tid":{thread},"ts":{sign}{ts}{more},"args":{{{args}}}}}"#
        )
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Microseconds with three digits after the point, as the format has them.
fn microseconds(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
}
