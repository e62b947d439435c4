//! A value that is made once, at its first use, and never into a deadlock.
//!
//! A cell that is being loaded has an [`Attempt`]. Threads that ask for it meanwhile wait for that attempt and
//! get its outcome. One process-wide graph knows which thread runs which attempts and which attempt it waits
//! for; before a thread waits, the graph is followed from there, and if the way leads back to the thread itself
//! the answer is an error that shows the way round. So a cycle is found when it closes, through any number of
//! cells, groups and threads.
//!
//! A failure is remembered, except in the middle of a cycle: when A needs B and B needs A, B fails only because
//! A is not ready *yet*. Each attempt therefore collects the attempts further out on which a cycle closed below
//! it; if there is one, its failure is passed on and forgotten, and the next one to ask tries again. (Whether the
//! outer attempt has ended meanwhile does not matter: what is remembered must not depend on timing.)

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::message::panic_message;
use crate::sync::{Clock, Condvar, Mutex, OnceLock};

/// A cell whose value is loaded at its first use, by code that may need other such cells.
///
/// Like [`OnceLock`](std::sync::OnceLock), with what plugins need beyond it: loading may fail or panic, no lock is
/// held meanwhile, and where `OnceLock` would deadlock — a value that needs itself, directly, through others, or
/// across threads — there is an error that shows the way round. A group loads its entry points through it; a
/// framework can open devices, decoders and the like through it, and cycles across all of them are seen.
///
/// ```
/// use entry_points::{Interrupted, OnceLoad};
///
/// static LEFT: OnceLoad<u32, String> = OnceLoad::new();
/// static RIGHT: OnceLoad<u32, String> = OnceLoad::new();
///
/// fn left() -> Result<&'static u32, String> {
///     LEFT.get_or_load(("sides", "left"), || right().copied(), |cause| cause.to_string())
/// }
///
/// fn right() -> Result<&'static u32, String> {
///     RIGHT.get_or_load(("sides", "right"), || left().copied(), |cause| cause.to_string())
/// }
///
/// assert_eq!(left().unwrap_err(), "it needs itself in order to load: left -> right -> left");
/// ```
///
/// A thread that the loading code starts by itself and joins is unknown to the cycle detection.
pub struct OnceLoad<T, E> {
    value: OnceLock<T>,
    progress: Mutex<Progress<E>>,
    remembers_failures: bool,
}

/// Why loading ended without an answer of the loading code's own.
#[derive(Clone, Debug)]
pub enum Interrupted {
    /// The value needs itself. The names on the way round, the same at both ends.
    Cycle(Arc<[String]>),
    /// The loading code panicked, with this message.
    Panicked(Arc<str>),
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle(path) => write!(f, "it needs itself in order to load: {}", path.join(" -> ")),
            Self::Panicked(message) => write!(f, "it panicked: {message}"),
        }
    }
}

/// How far a cell has come.
#[derive(Clone, Debug)]
pub(crate) enum Progress<E> {
    NotLoaded,
    Loading { attempt: Arc<Attempt>, result: Arc<OnceLock<Result<(), E>>> },
    Loaded { took: Duration },
    Failed(E),
}

impl<T, E: Clone> OnceLoad<T, E> {
    /// An empty cell that remembers a failure: until [`retry`](Self::retry) everybody gets the same error.
    #[must_use]
    pub const fn new() -> Self {
        Self::empty(true)
    }

    /// An empty cell that forgets failures: after one, the next to ask tries again.
    #[must_use]
    pub const fn forgetting_failures() -> Self {
        Self::empty(false)
    }

    const fn empty(remembers_failures: bool) -> Self {
        Self { value: OnceLock::new(), progress: Mutex::new(Progress::NotLoaded), remembers_failures }
    }

    /// The value, if it is loaded. Takes no lock.
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// The value; runs `load` on this thread unless it is loaded, or waits while another thread does.
    ///
    /// `name` is the group and the name of the value, as cycles show it.
    ///
    /// # Errors
    ///
    /// What `load` returned, or what `interrupted` makes of a cycle or a panic.
    pub fn get_or_load(
        &self,
        name: (&'static str, &str),
        load: impl FnOnce() -> Result<T, E>,
        interrupted: impl FnOnce(Interrupted) -> E,
    ) -> Result<&T, E> {
        self.run(name, load, interrupted, false)
    }

    /// Like [`get_or_load`](Self::get_or_load), but tries again if loading failed before.
    ///
    /// # Errors
    ///
    /// As [`get_or_load`](Self::get_or_load).
    pub fn retry(
        &self,
        name: (&'static str, &str),
        load: impl FnOnce() -> Result<T, E>,
        interrupted: impl FnOnce(Interrupted) -> E,
    ) -> Result<&T, E> {
        self.run(name, load, interrupted, true)
    }

    pub(crate) fn progress(&self) -> Progress<E> {
        self.progress.lock().clone()
    }

    fn run(
        &self,
        (group, name): (&'static str, &str),
        load: impl FnOnce() -> Result<T, E>,
        interrupted: impl FnOnce(Interrupted) -> E,
        retry: bool,
    ) -> Result<&T, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let this_thread = thread::current().id();
        let mut graph = GRAPH.lock();
        // The order of locks: the graph, then a cell.
        let mut progress = self.progress.lock();
        match progress.clone() {
            Progress::NotLoaded => {}
            Progress::Failed(_) if retry => {}
            Progress::Failed(error) => return Err(error),
            Progress::Loaded { .. } => return Ok(self.loaded()),
            Progress::Loading { attempt, result } => {
                drop(progress);
                if let Err(path) = wait(graph, this_thread, &attempt) {
                    return Err(interrupted(Interrupted::Cycle(path)));
                }
                let result = result.get().expect("an attempt that has ended has a result");
                return result.clone().map(|()| self.loaded());
            }
        }
        let attempt = Arc::new(Attempt::new(group, name, this_thread));
        let result = Arc::new(OnceLock::new());
        *progress = Progress::Loading { attempt: Arc::clone(&attempt), result: Arc::clone(&result) };
        graph.begin(&attempt);
        drop(progress);
        drop(graph);

        // No lock is held from here on. What `load` leaves half done stays with it: nothing of ours is shared.
        let outcome = catch_unwind(AssertUnwindSafe(load))
            .unwrap_or_else(|panic| Err(interrupted(Interrupted::Panicked(panic_message(panic).into()))));
        let took = attempt.since.elapsed();

        let mut graph = GRAPH.lock();
        let mut progress = self.progress.lock();
        let caught_in_a_cycle = graph.end(&attempt, outcome.is_err());
        let ended = outcome.map(|value| {
            assert!(self.value.set(value).is_ok(), "a cell is loaded once");
        });
        *progress = match &ended {
            Ok(()) => Progress::Loaded { took },
            Err(error) if self.remembers_failures && !caught_in_a_cycle => Progress::Failed(error.clone()),
            Err(_) => Progress::NotLoaded,
        };
        result.set(ended.clone()).ok().expect("an attempt ends once");
        attempt.finished.notify_all();
        ended.map(|()| self.loaded())
    }

    fn loaded(&self) -> &T {
        self.value.get().expect("a loaded cell has a value")
    }
}

impl<T, E: Clone> Default for OnceLoad<T, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug, E> fmt::Debug for OnceLoad<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceLoad").field(&self.value.get()).finish()
    }
}

/// One run of some loading code.
#[derive(Debug)]
pub(crate) struct Attempt {
    group: &'static str,
    name: String,
    thread: ThreadId,
    pub(crate) since: Clock,
    /// Set when it has ended: the attempts further out to which a cycle led back from below a failure.
    awaits: OnceLock<Vec<Arc<Attempt>>>,
    /// Signalled then, under the graph's lock.
    finished: Condvar,
}

impl Attempt {
    fn new(group: &'static str, name: &str, thread: ThreadId) -> Self {
        Self {
            group,
            name: name.to_owned(),
            thread,
            since: Clock::now(),
            awaits: OnceLock::new(),
            finished: Condvar::default(),
        }
    }
}

/// Who loads what, and who waits for whom. A short list: threads that load nothing are not in it.
struct Graph {
    threads: Vec<Thread>,
}

struct Thread {
    id: ThreadId,
    /// Innermost last.
    running: Vec<Running>,
    waits_for: Option<Arc<Attempt>>,
}

struct Running {
    attempt: Arc<Attempt>,
    awaits: Vec<Arc<Attempt>>,
}

static GRAPH: Mutex<Graph> = Mutex::new(Graph { threads: Vec::new() });

type LockedGraph = std::sync::MutexGuard<'static, Graph>;

impl Graph {
    fn thread(&mut self, id: ThreadId) -> &mut Thread {
        let at = self.threads.iter().position(|thread| thread.id == id).unwrap_or_else(|| {
            self.threads.push(Thread { id, running: Vec::new(), waits_for: None });
            self.threads.len() - 1
        });
        &mut self.threads[at]
    }

    fn begin(&mut self, attempt: &Arc<Attempt>) {
        let running = Running { attempt: Arc::clone(attempt), awaits: Vec::new() };
        self.thread(attempt.thread).running.push(running);
    }

    /// Ends the innermost attempt of its thread. Returns whether its failure may come from a cycle further out.
    fn end(&mut self, attempt: &Arc<Attempt>, failed: bool) -> bool {
        let innermost = self.thread(attempt.thread).running.pop().expect("what ends was begun");
        debug_assert!(Arc::ptr_eq(&innermost.attempt, attempt), "attempts of one thread are nested");
        let mut awaits = innermost.awaits;
        awaits.retain(|other| failed && !Arc::ptr_eq(other, attempt));
        self.pass_on(attempt.thread, &awaits);
        self.forget_idle(attempt.thread);
        let caught = !awaits.is_empty();
        attempt.awaits.set(awaits).expect("an attempt ends once");
        caught
    }

    /// The way from `wanted` back to a thread that would wait for it, as names; `None` if it may wait.
    ///
    /// Ends, because no thread ever starts to wait where this finds a way back.
    fn path_back(&self, waiter: ThreadId, wanted: &Arc<Attempt>) -> Option<Arc<[String]>> {
        let mut path = Vec::new();
        let mut next = wanted;
        loop {
            let thread = self.threads.iter().find(|thread| thread.id == next.thread)?;
            let from = thread.running.iter().position(|running| Arc::ptr_eq(&running.attempt, next))?;
            path.extend(thread.running[from..].iter().map(|running| &*running.attempt));
            if thread.id == waiter {
                path.push(wanted);
                return Some(names(&path));
            }
            next = thread.waits_for.as_ref()?;
        }
    }

    /// Notes for the innermost attempt of a thread, if there is one, that its failure may come from a cycle.
    fn pass_on(&mut self, thread: ThreadId, awaits: &[Arc<Attempt>]) {
        if let Some(innermost) = self.thread(thread).running.last_mut() {
            innermost.awaits.extend_from_slice(awaits);
        }
    }

    fn forget_idle(&mut self, id: ThreadId) {
        self.threads
            .retain(|thread| thread.id != id || !thread.running.is_empty() || thread.waits_for.is_some());
    }
}

/// Waits for the end of an attempt, or returns the way round if that would be for ever.
fn wait(mut graph: LockedGraph, waiter: ThreadId, wanted: &Arc<Attempt>) -> Result<(), Arc<[String]>> {
    if let Some(path) = graph.path_back(waiter, wanted) {
        graph.pass_on(waiter, std::slice::from_ref(wanted));
        return Err(path);
    }
    graph.thread(waiter).waits_for = Some(Arc::clone(wanted));
    let awaits = loop {
        match wanted.awaits.get() {
            Some(awaits) => break awaits,
            None => graph = wanted.finished.wait(graph),
        }
    };
    graph.thread(waiter).waits_for = None;
    graph.pass_on(waiter, awaits);
    graph.forget_idle(waiter);
    Ok(())
}

/// Bare names within one group, `group/name` across groups.
fn names(path: &[&Attempt]) -> Arc<[String]> {
    let one_group = path.iter().all(|attempt| attempt.group == path[0].group);
    let name = |attempt: &&Attempt| match one_group {
        true => attempt.name.clone(),
        false => format!("{}/{}", attempt.group, attempt.name),
    };
    path.iter().map(name).collect()
}
