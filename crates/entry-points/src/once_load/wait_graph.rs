//! The wait graph: which attempts each thread runs, and for which attempt each thread waits.

use std::sync::Arc;

use crate::sync::{Clock, Condvar, Mutex, MutexGuard, OnceLock, ThreadId, process};

/// One run of the loading code of a cell.
#[derive(Debug)]
pub(super) struct Attempt {
    group: &'static str,
    name: String,
    thread: ThreadId,
    process: u32,
    pub(super) since: Clock,
    /// Set when the attempt ends: the outer attempts to which a cycle led back, if the attempt failed.
    awaits: OnceLock<Vec<Arc<Attempt>>>,
    /// Signalled when the attempt ends, while the graph is locked.
    pub(super) finished: Condvar,
}

impl Attempt {
    pub(super) fn new(group: &'static str, name: &str, thread: ThreadId) -> Self {
        Self {
            group,
            name: name.to_owned(),
            thread,
            process: process(),
            since: Clock::now(),
            awaits: OnceLock::default(),
            finished: Condvar::default(),
        }
    }

    /// Whether the thread of the attempt may be missing in this process. The thread that calls `fork` exists
    /// in the child too, and may call it while it loads.
    pub(super) fn is_orphaned(&self, this_thread: ThreadId) -> bool {
        self.thread != this_thread && self.process != process()
    }
}

/// The threads that run an attempt or wait for one. All other threads are left out, so the list is short.
pub(super) struct Graph {
    pub(super) threads: Vec<Thread>,
}

pub(super) struct Thread {
    id: ThreadId,
    /// The attempts that the thread runs, innermost last.
    pub(super) running: Vec<Running>,
    waits_for: Option<Arc<Attempt>>,
}

pub(super) struct Running {
    attempt: Arc<Attempt>,
    awaits: Vec<Arc<Attempt>>,
}

#[cfg(not(all(test, loom)))]
pub(super) static GRAPH: Mutex<Graph> = Mutex::new(Graph::EMPTY);

// Each interleaving of a model begins with an empty graph.
#[cfg(all(test, loom))]
loom::lazy_static! {
    pub(super) static ref GRAPH: Mutex<Graph> = Mutex::new(Graph::EMPTY);
}

type LockedGraph = MutexGuard<'static, Graph>;

impl Graph {
    const EMPTY: Self = Self { threads: Vec::new() };

    fn thread(&mut self, id: ThreadId) -> &mut Thread {
        let at = self.threads.iter().position(|thread| thread.id == id).unwrap_or_else(|| {
            self.threads.push(Thread { id, running: Vec::new(), waits_for: None });
            self.threads.len() - 1
        });
        &mut self.threads[at]
    }

    pub(super) fn begin(&mut self, attempt: &Arc<Attempt>) {
        let running = Running { attempt: Arc::clone(attempt), awaits: Vec::new() };
        self.thread(attempt.thread).running.push(running);
    }

    /// Ends the innermost attempt of its thread. Returns whether its failure may come from a cycle through an
    /// outer one.
    pub(super) fn end(&mut self, attempt: &Arc<Attempt>, failed: bool) -> bool {
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

    /// The names on the path from `wanted` back to the thread `waiter`. `None` if that thread may wait.
    ///
    /// The loop ends, since the graph has no cycle: no thread begins to wait if this returns a path.
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

    /// Records in the innermost attempt of a thread, if it has one, that its failure may come from a cycle.
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

/// Waits for the end of an attempt. If the wait would never end, returns the names on the cycle.
pub(super) fn wait(
    mut graph: LockedGraph,
    waiter: ThreadId,
    wanted: &Arc<Attempt>,
) -> Result<(), Arc<[String]>> {
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

/// The names of attempts: bare within one group, `group/name` across groups.
fn names(path: &[&Attempt]) -> Arc<[String]> {
    let one_group = path.iter().all(|attempt| attempt.group == path[0].group);
    let name = |attempt: &&Attempt| {
        if one_group { attempt.name.clone() } else { format!("{}/{}", attempt.group, attempt.name) }
    };
    path.iter().map(name).collect()
}
