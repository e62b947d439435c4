//! Loading: once, on the first thread that asks, with no lock held, and never into a deadlock.
//!
//! A name that is being loaded has an [`Attempt`]. Threads that ask for it meanwhile wait for that attempt and
//! get its outcome. One process-wide graph knows which thread runs which attempts and which attempt it waits
//! for; before a thread waits, the graph is followed from there, and if the way leads back to the thread itself
//! the answer is an error that shows the way round. So a cycle is found when it closes, through any number of
//! names, groups and threads. (A thread that `load` starts by itself and joins is beyond this knowledge.)
//!
//! A failure is remembered, except in the middle of a cycle: when A needs B and B needs A, B fails only because
//! A is not ready *yet*. Each attempt therefore collects the attempts further out on which a cycle closed below
//! it; if there is one, its failure is passed on and forgotten, and the next one to ask tries again. (Whether the
//! outer attempt has ended meanwhile does not matter: what is remembered must not depend on timing.)

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::LoadError;
use crate::entry::Slot;
use crate::error::EntryName;
use crate::sync::{Clock, Condvar, Mutex, OnceLock};

/// Where a name stands with respect to loading.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    NotLoaded,
    Loading(Arc<Attempt>),
    Loaded { took: Duration },
    Failed(LoadError),
}

/// One run of one `load` function.
#[derive(Debug)]
pub(crate) struct Attempt {
    entry: EntryName,
    thread: ThreadId,
    pub(crate) since: Clock,
    outcome: OnceLock<Outcome>,
    /// Signalled, under the graph's lock, when there is an outcome.
    finished: Condvar,
}

#[derive(Debug)]
struct Outcome {
    result: Result<(), LoadError>,
    /// Attempts further out to which a cycle led back from below this one.
    awaits: Vec<Arc<Attempt>>,
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

/// Loads what is behind `slot`, unless that has been done; blocks while another thread does it. A remembered
/// failure is returned, or, with `retry`, forgotten.
pub(crate) fn load<P>(slot: &'static Slot<P>, retry: bool) -> Result<&'static P, LoadError>
where
    P: ?Sized + Send + Sync + 'static,
{
    if let Some(plugin) = slot.loaded() {
        return Ok(plugin);
    }
    let this_thread = thread::current().id();
    let mut graph = GRAPH.lock();
    // The order of locks: the graph, then a slot.
    let mut state = slot.state();
    match state.progress.clone() {
        Progress::NotLoaded => {}
        Progress::Failed(_) if retry => {}
        Progress::Loaded { .. } => return Ok(slot.loaded().expect("a loaded slot holds its plugin")),
        Progress::Failed(error) => return Err(error),
        Progress::Loading(attempt) => {
            drop(state);
            if let Some(path) = graph.path_back(this_thread, &attempt) {
                graph.pass_on(this_thread, &[Arc::clone(&attempt)]);
                return Err(LoadError::Cycle {
                    entry: attempt.entry.clone(),
                    path,
                });
            }
            graph.thread(this_thread).waits_for = Some(Arc::clone(&attempt));
            while attempt.outcome.get().is_none() {
                graph = attempt.finished.wait(graph);
            }
            graph.thread(this_thread).waits_for = None;
            let outcome = attempt.outcome.get().expect("waited for it");
            graph.pass_on(this_thread, &outcome.awaits);
            graph.forget_idle(this_thread);
            return match &outcome.result {
                Ok(()) => Ok(slot.loaded().expect("a loaded slot holds its plugin")),
                Err(error) => Err(error.clone()),
            };
        }
    }
    let point = slot.chosen(&state)?;
    let entry = slot.entry_name(point);
    let attempt = Arc::new(Attempt {
        entry: entry.clone(),
        thread: this_thread,
        since: Clock::now(),
        outcome: OnceLock::new(),
        finished: Condvar::default(),
    });
    state.progress = Progress::Loading(Arc::clone(&attempt));
    graph.thread(this_thread).running.push(Running {
        attempt: Arc::clone(&attempt),
        awaits: Vec::new(),
    });
    drop(state);
    drop(graph);

    // No lock is held from here on. What `load` leaves half done stays with it: nothing of ours is shared.
    let result = match catch_unwind(AssertUnwindSafe(|| point.call())) {
        // Never unloaded: `&'static P` is sound, and a driver is not pulled from under its users.
        Ok(Ok(plugin)) => Ok(&*Box::leak(plugin)),
        Ok(Err(failure)) if failure.is_unavailable() => Err(LoadError::Unavailable {
            entry,
            reason: failure,
        }),
        Ok(Err(failure)) => Err(LoadError::Failed {
            entry,
            cause: failure,
        }),
        Err(panic) => Err(LoadError::Panicked {
            entry,
            message: panic_message(panic).into(),
        }),
    };
    let took = attempt.since.elapsed();

    let mut graph = GRAPH.lock();
    let running = graph
        .thread(this_thread)
        .running
        .pop()
        .expect("this attempt is the innermost of its thread");
    debug_assert!(Arc::ptr_eq(&running.attempt, &attempt));
    let mut awaits = running.awaits;
    awaits.retain(|other| !Arc::ptr_eq(other, &attempt));
    if result.is_ok() {
        awaits.clear();
    }
    let mut state = slot.state();
    state.progress = match &result {
        Ok(plugin) => {
            slot.set_loaded(plugin);
            Progress::Loaded { took }
        }
        Err(_) if !awaits.is_empty() => Progress::NotLoaded,
        Err(error) => Progress::Failed(error.clone()),
    };
    drop(state);
    graph.pass_on(this_thread, &awaits);
    graph.forget_idle(this_thread);
    let outcome = Outcome {
        result: result.as_ref().map(|_| ()).map_err(Clone::clone),
        awaits,
    };
    attempt.outcome.set(outcome).expect("an attempt ends once");
    attempt.finished.notify_all();
    result
}

impl Graph {
    fn thread(&mut self, id: ThreadId) -> &mut Thread {
        let at = self
            .threads
            .iter()
            .position(|thread| thread.id == id)
            .unwrap_or_else(|| {
                self.threads.push(Thread {
                    id,
                    running: Vec::new(),
                    waits_for: None,
                });
                self.threads.len() - 1
            });
        &mut self.threads[at]
    }

    /// The way from `wanted` back to a thread that would wait for it, as names; `None` if it may wait.
    ///
    /// Ends, because no thread ever starts to wait where this finds a way back.
    fn path_back(&self, waiter: ThreadId, wanted: &Arc<Attempt>) -> Option<Arc<[String]>> {
        let mut path = Vec::new();
        let mut next = wanted;
        loop {
            let thread = self.threads.iter().find(|thread| thread.id == next.thread)?;
            let from = thread
                .running
                .iter()
                .position(|running| Arc::ptr_eq(&running.attempt, next))?;
            path.extend(
                thread.running[from..]
                    .iter()
                    .map(|running| &running.attempt.entry),
            );
            if thread.id == waiter {
                path.push(&wanted.entry);
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

/// Bare names within one group, `group/name` across groups.
fn names(path: &[&EntryName]) -> Arc<[String]> {
    let one_group = path.iter().all(|entry| entry.group == path[0].group);
    path.iter()
        .map(|entry| {
            if one_group {
                entry.name.to_owned()
            } else {
                format!("{}/{}", entry.group, entry.name)
            }
        })
        .collect()
}

/// The text of a panic. The payload of any other type is leaked: dropping it could panic again.
pub(crate) fn panic_message(payload: Box<dyn Any + Send>) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        std::mem::forget(payload);
        "a panic without a message".to_owned()
    }
}
