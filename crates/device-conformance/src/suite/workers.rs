//! The processes that run the checks, seen from the one that prints the report.

use std::collections::BTreeMap;
use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::mem::take;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::builder::Suite;
use super::device_under_test::OPENING;
use super::wire::{Reply, Request, parse_reply, request_line};
use crate::availability::Availability;
use crate::check::Check;
use crate::environment::{self, WORKER};
use crate::expectations;
use crate::verdict::{Judged, Verdict};

/// How long the end of a worker's output may take to arrive when the worker has ended, and the other way
/// round.
const ENDING: Duration = Duration::from_secs(5);

/// A worker replies within this many time limits, to one request or another: a check may open its device,
/// exceed its limit, clean up, and wait for the judgement of another one that hangs. A driver that has
/// written over the memory of the suite's own threads may keep them from ever replying.
const REPLYING: u32 = OPENING + 4;

/// Runs checks in workers: in one for all, and once one has died, in one for each.
pub(super) struct Workers {
    suite: Arc<Suite>,
    /// Started by the first request.
    shared: Mutex<Option<Arc<Worker>>>,
    /// Whether each check has its own process.
    own: AtomicBool,
    /// Held while a check runs in its own process: what one check does to a device may disturb another
    /// one.
    one_at_a_time: Mutex<()>,
    deaths: Mutex<Vec<Arc<Death>>>,
}

impl Workers {
    pub(super) fn new(suite: &Arc<Suite>, own: bool) -> Self {
        let shared = Mutex::default();
        let one_at_a_time = Mutex::default();
        let deaths = Mutex::default();
        Self { suite: Arc::clone(suite), shared, own: AtomicBool::new(own), one_at_a_time, deaths }
    }

    pub(super) fn load(&self, backend: &str) -> Availability<String> {
        let worker = match self.shared() {
            Ok(worker) => worker,
            Err(error) => return Availability::Broken(cannot_start(&error)),
        };
        match worker.load(backend) {
            Ok(availability) => availability,
            Err(death) => {
                self.shared.lock().take_if(|shared| Arc::ptr_eq(shared, &worker));
                let calls = "while it was loaded and its devices were counted";
                Availability::Broken(format!("its process ended with {} {calls}", death.status))
            }
        }
    }

    pub(super) fn run(&self, backend: &str, device: &str, check: &'static Check) -> Judged {
        let mut first = None;
        if !self.own.load(Ordering::Relaxed) {
            let result = match self.shared() {
                Ok(worker) => worker.run(backend, device, check),
                Err(error) => return Verdict::Failed(cannot_start(&error)).into(),
            };
            match result {
                Ok(judged) => return judged,
                Err(death) => first = Some(death),
            }
            self.own.store(true, Ordering::Relaxed);
        }
        let _alone = self.one_at_a_time.lock();
        if let Some(death) = &first {
            self.note(death);
        }
        match self.run_alone(backend, device, check) {
            Ok(judged) => judged,
            Err(BadEnd { judged, how }) => {
                if let Some(death) = &first {
                    death.is_reproduced.store(true, Ordering::Relaxed);
                }
                let expected = expectations::reason(&self.suite.expected_failures, device, check.name());
                let failed = Verdict::new(check.failed(&how), expected);
                let Some(Judged { verdict, exceeded }) = judged else { return failed.into() };
                let verdict = match verdict {
                    Verdict::Failed(message) => Verdict::Failed(format!("{message}\nand {how}")),
                    Verdict::ExpectedFailure(reason) => {
                        Verdict::ExpectedFailure(format!("{reason}; and {how}"))
                    }
                    Verdict::Passed | Verdict::Unsupported(_) | Verdict::Skipped(_) => failed,
                };
                Judged { verdict, exceeded }
            }
        }
    }

    /// Runs a check in its own process. An error is how that process ended, if it did not end well.
    fn run_alone(&self, backend: &str, device: &str, check: &'static Check) -> Result<Judged, BadEnd> {
        let worker = match Worker::start(environment::Worker::Traced, self.suite.time_limit) {
            Ok(worker) => worker,
            Err(error) => return Ok(Verdict::Failed(cannot_start(&error)).into()),
        };
        let judged = match worker.load(backend) {
            Ok(Availability::Available(_)) => worker.run(backend, device, check),
            Ok(Availability::Unavailable(reason)) => Ok(Verdict::Skipped(reason).into()),
            Ok(Availability::Broken(message)) => Ok(Verdict::Failed(message).into()),
            Err(death) => Err(death),
        };
        let judged = judged.map_err(|death| BadEnd { judged: None, how: death.of_a_check() })?;
        match worker.end(self.suite.time_limit) {
            Ok(()) => Ok(judged),
            Err(how) => {
                Err(BadEnd { judged: Some(judged), how: format!("its process {how}, after the check") })
            }
        }
    }

    /// Notes the death of the worker that all checks shared, the first time.
    fn note(&self, death: &Arc<Death>) {
        let mut deaths = self.deaths.lock();
        if deaths.iter().any(|of| Arc::ptr_eq(of, death)) {
            return;
        }
        deaths.push(Arc::clone(death));
        eprintln!("note: {}\nfrom now on each check has a process of its own", death.of_several());
    }

    pub(super) fn end(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(worker) = self.shared.lock().take() {
            match worker.death() {
                Some(death) => self.note(&death),
                None => {
                    if let Err(how) = worker.end(self.suite.time_limit) {
                        problems.push(format!("the process of the checks {how}, after the last check"));
                    }
                }
            }
        }
        for death in self.deaths.lock().iter().filter(|death| !death.is_reproduced.load(Ordering::Relaxed)) {
            problems.push(format!("{}; no check did that in a process of its own", death.of_several()));
        }
        problems
    }

    fn shared(&self) -> io::Result<Arc<Worker>> {
        let mut shared = self.shared.lock();
        if let Some(worker) = &*shared {
            return Ok(Arc::clone(worker));
        }
        Ok(Arc::clone(shared.insert(Worker::start(environment::Worker::Shared, self.suite.time_limit)?)))
    }
}

fn cannot_start(error: &io::Error) -> String {
    format!("cannot start a process for the checks: {error}")
}

/// The end of a process that ran one check and did not end well.
struct BadEnd {
    /// `None` if the check was not judged by then.
    judged: Option<Judged>,
    how: String,
}

/// How a worker ended.
struct Death {
    status: String,
    /// Whether it was asked to, and did, with success.
    is_in_order: bool,
    /// The checks that ran.
    running: Vec<String>,
    /// The calls into drivers that were under way, if the worker reports them.
    calls: Vec<String>,
    /// Whether a check did the same in its own process.
    is_reproduced: AtomicBool,
}

impl Death {
    fn of_a_check(&self) -> String {
        let calls = match &self.calls[..] {
            [] => "no call into a driver was under way".to_owned(),
            calls => format!("under way: {}", calls.join("; ")),
        };
        format!("its process ended with {}; {calls}", self.status)
    }

    fn of_several(&self) -> String {
        let running = match &self.running[..] {
            [] => "no check ran".to_owned(),
            running => format!("these ran: {}", running.join(", ")),
        };
        format!("the process of the checks ended with {} while {running}", self.status)
    }
}

/// A worker process.
struct Worker {
    child: Arc<Mutex<Child>>,
    /// `None` once the worker was asked to end.
    stdin: Mutex<Option<ChildStdin>>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// What each request is about, and where its reply goes.
    waiting: BTreeMap<u64, (String, mpsc::Sender<Reply>)>,
    /// The calls under way, each with its thread.
    calls: Vec<(String, String)>,
    /// Whether the last reply has arrived, which a worker sends when it was asked to end.
    has_said_bye: bool,
    /// The first line that should be a reply and is none. No request can rely on its reply from there on.
    torn: Option<String>,
    /// When the last request was answered, or the first one was sent that is not answered.
    since: Option<Instant>,
    /// Whether the process was killed because it did not reply.
    is_silent: bool,
    /// Set when the process has ended.
    death: Option<Arc<Death>>,
}

impl State {
    /// Whether there are requests and no reply to any of them for so long. True once.
    fn becomes_silent(&mut self, limit: Duration) -> bool {
        let is_silent = !self.waiting.is_empty() && self.since.is_some_and(|since| since.elapsed() > limit);
        is_silent && !std::mem::replace(&mut self.is_silent, true)
    }
}

impl Worker {
    fn start(worker: environment::Worker, limit: Duration) -> io::Result<Arc<Self>> {
        // The process also has to start.
        let limit = limit.saturating_mul(REPLYING).saturating_add(ENDING);
        let mut command = Command::new(env::current_exe()?);
        command.args(env::args_os().skip(1)).env(WORKER, worker.value());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let child = Arc::new(Mutex::new(child));
        let state = Arc::new(Mutex::new(State::default()));
        let (end, ended) = mpsc::channel();
        let worker = Arc::new(Self { child, stdin: Mutex::new(stdin), state });
        let of = || (Arc::clone(&worker.child), Arc::clone(&worker.state));
        let ((read_child, read_state), (watched, watched_state)) = (of(), of());
        let reader = thread::Builder::new().spawn(move || {
            if let Some(stdout) = stdout {
                read(stdout, &read_child, &read_state);
            }
            drop(end);
        });
        let watcher = || thread::Builder::new().spawn(move || watch(&watched, &watched_state, &ended, limit));
        if let Err(error) = reader.and_then(|_| watcher()) {
            kill(&worker.child);
            // It was killed, so this does not take long, and leaves nothing of it.
            let _ = worker.child.lock().wait();
            return Err(error);
        }
        Ok(worker)
    }

    fn load(&self, backend: &str) -> Result<Availability<String>, Arc<Death>> {
        let request = Request::Load { backend: backend.to_owned() };
        match self.request(format!("the load of `{backend}`"), &request)? {
            Reply::Loaded(_, availability) => Ok(availability),
            other => Ok(Availability::Broken(format!("unexpected reply of a worker: {other:?}"))),
        }
    }

    fn run(&self, backend: &str, device: &str, check: &'static Check) -> Result<Judged, Arc<Death>> {
        let name = format!("{device}::{}", check.name());
        let backend = backend.to_owned();
        let device = device.to_owned();
        let check = check.name().to_owned();
        match self.request(name, &Request::Run { backend, device, check })? {
            Reply::Judged(_, judged) => Ok(judged),
            other => Ok(Verdict::Failed(format!("unexpected reply of a worker: {other:?}")).into()),
        }
    }

    /// Sends a request, and waits for its reply or for the end of the process.
    fn request(&self, what: String, request: &Request) -> Result<Reply, Arc<Death>> {
        let (sender, reply) = mpsc::channel();
        let number = {
            let state = &mut *self.state.lock();
            if let Some(death) = &state.death {
                return Err(Arc::clone(death));
            }
            state.next += 1;
            if state.waiting.is_empty() {
                state.since = Some(Instant::now());
            }
            state.waiting.insert(state.next, (what, sender));
            state.next
        };
        if let Some(stdin) = &mut *self.stdin.lock() {
            // Fails if the process has ended, which the reply shows.
            let _ = stdin.write_all(request_line(number, request).as_bytes());
        }
        reply.recv().map_err(|_| self.death().expect("the senders are dropped where the death is set"))
    }

    fn death(&self) -> Option<Arc<Death>> {
        self.state.lock().death.clone()
    }

    /// Asks the process to end. An error is how it ended, if it did not end well.
    fn end(&self, limit: Duration) -> Result<(), String> {
        drop(self.stdin.lock().take());
        // The end is known when the output has arrived.
        let since = Instant::now();
        let limit = limit.saturating_add(ENDING);
        loop {
            match self.death() {
                Some(death) if death.is_in_order => return Ok(()),
                Some(death) => return Err(format!("ended with {}", death.status)),
                None if since.elapsed() > limit => {
                    kill(&self.child);
                    return Err(format!("did not end in {limit:?}"));
                }
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// Passes replies on, and prints every other line, until the output ends. Kills the process after a torn
/// reply.
fn read(stdout: ChildStdout, child: &Mutex<Child>, state: &Mutex<State>) {
    let mut stdout = BufReader::new(stdout);
    let mut line = Vec::new();
    while matches!(stdout.read_until(b'\n', &mut line), Ok(1..)) {
        let text = String::from_utf8_lossy(&take(&mut line)).into_owned();
        let text = text.trim_end_matches(['\n', '\r']);
        let Some(reply) = parse_reply(text) else {
            // Each reply begins with the end of a line, in case that a driver has printed the start of one.
            if !text.is_empty() {
                println!("{text}");
            }
            continue;
        };
        let mut is_torn = false;
        let state = &mut *state.lock();
        match reply {
            Ok(reply @ (Reply::Loaded(number, _) | Reply::Judged(number, _))) => {
                match state.waiting.remove(&number) {
                    // It waits for as long as the process lives.
                    Some((_, waiting)) => {
                        state.since = Some(Instant::now());
                        let _ = waiting.send(reply);
                    }
                    None => is_torn = true,
                }
            }
            Err(()) => is_torn = true,
            Ok(Reply::Bye) => state.has_said_bye = true,
            Ok(Reply::Begins(thread, call)) => state.calls.push((thread, call)),
            Ok(Reply::Ends(thread)) => {
                if let Some(last) = state.calls.iter().rposition(|(of, _)| *of == thread) {
                    state.calls.remove(last);
                }
            }
        }
        if is_torn {
            state.torn.get_or_insert_with(|| text.to_owned());
            kill(child);
        }
    }
}

/// Waits until the process has ended, notes how, and wakes up all that wait for its replies.
///
/// Kills a process that has requests and replies to none of them within `limit`.
fn watch(child: &Mutex<Child>, state: &Mutex<State>, output_ended: &mpsc::Receiver<()>, limit: Duration) {
    let mut closed = None;
    let (mut status, is_success) = loop {
        match child.lock().try_wait() {
            Ok(Some(status)) => break (status.to_string(), status.success()),
            Ok(None) => {}
            Err(error) => break (format!("an unknown status ({error})"), false),
        }
        if state.lock().becomes_silent(limit) {
            kill(child);
        }
        match closed {
            // Its output usually ends when it does.
            None => {
                if output_ended.recv_timeout(Duration::from_millis(20))
                    == Err(mpsc::RecvTimeoutError::Disconnected)
                {
                    closed = Some(Instant::now());
                }
            }
            Some(since) => {
                if since.elapsed() > ENDING {
                    kill(child);
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
    };
    if closed.is_none() {
        // A process that it started may hold the output open. After the last reply, nothing is missing.
        let since = Instant::now();
        let timeout = Err(mpsc::RecvTimeoutError::Timeout);
        while !state.lock().has_said_bye
            && since.elapsed() < ENDING
            && output_ended.recv_timeout(Duration::from_millis(20)) == timeout
        {}
    }
    let state = &mut *state.lock();
    let is_in_order = is_success && state.has_said_bye && state.torn.is_none();
    if let Some(torn) = &state.torn {
        status += &format!(", after a torn reply on its standard output: `{torn}`");
    } else if state.is_silent {
        status += &format!(", after it had not replied for {limit:?}");
    } else if is_success && !is_in_order {
        status += ", which it was not asked for";
    }
    let waiting = take(&mut state.waiting);
    let running = waiting.values().map(|(what, _)| what.clone()).collect();
    let calls = take(&mut state.calls).into_iter().map(|(_, call)| call).collect();
    let is_reproduced = AtomicBool::new(false);
    state.death = Some(Arc::new(Death { status, is_in_order, running, calls, is_reproduced }));
}

fn kill(child: &Mutex<Child>) {
    // Fails if it has ended.
    let _ = child.lock().kill();
}
