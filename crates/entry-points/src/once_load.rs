//! A cell that loads its value at the first use, and never deadlocks.
//!
//! A cell that is loading has an [`Attempt`]. Other threads that want the value wait for that attempt and get
//! its outcome. The process has one wait graph: it knows which attempts each thread runs, and for which
//! attempt each thread waits. Before a thread waits, it follows the graph from that attempt. If the path
//! leads back to the thread, the cell returns an error that shows the cycle. So a cycle is found when it
//! closes, across any number of cells, groups and threads.
//!
//! Each cell has a rule that says how long it remembers a failure: see [`Remember`]. Inside a cycle the rule
//! does not apply. When A needs B and B needs A, B fails only because A is not ready *yet*. Each attempt
//! therefore collects the outer attempts to which a cycle led back from below it. If it has any, its failure
//! is passed on to the next outer attempt and forgotten, and the next use tries again. This holds even if the
//! outer attempt has ended meanwhile: which failures are remembered must not depend on timing.
//!
//! A child of `fork` has one thread. An attempt of any other thread of the parent never ends in the child,
//! and a lock that such a thread held is never released. Both cases are errors in the child.

#[cfg(all(test, loom))]
mod model;
mod wait_graph;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::message::panic_message;
use crate::sync::{Clock, Mutex, OnceLock, Orphaned, ThreadId, this_thread};

use self::wait_graph::{Attempt, GRAPH, wait};

/// A cell whose value is loaded at its first use, by code that may need other such cells.
///
/// It is like [`OnceLock`](std::sync::OnceLock), but loading may fail or panic, and runs with no lock held.
/// `OnceLock` deadlocks if a value needs itself, directly, through others, or across threads. This cell
/// returns an error that shows the cycle. A group loads its entry points through such cells. A framework can
/// load devices, files or decoders through them too: a cycle across all of them is found.
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
/// assert_eq!(left().unwrap_err(), "it needs itself to load: left -> right -> left");
/// ```
///
/// The cycle detection does not see threads that the loading code itself starts and joins.
pub struct OnceLoad<T, E> {
    value: OnceLock<Loaded<T>>,
    progress: Mutex<Progress<E>>,
    remember: fn(&E) -> Remember,
}

/// How long a cell remembers a failure. Meanwhile a use returns the same error and runs no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remember {
    /// Until [`OnceLoad::retry`].
    UntilRetry,
    /// For this time after the end of the attempt, or until [`OnceLoad::retry`]. On a target without a clock,
    /// until `retry`.
    For(Duration),
    /// Not at all: the next use tries again.
    Never,
}

struct Loaded<T> {
    value: T,
    took: Duration,
}

/// Why the loading code returned no result.
#[derive(Clone, Debug)]
pub enum Interrupted {
    /// The value needs itself. Contains the names on the cycle, with the same name at both ends.
    Cycle(Arc<[String]>),
    /// The loading code panicked, with this message.
    Panicked(Arc<str>),
    /// At the time of a fork, another thread of the parent process was loading this value, or briefly held a
    /// lock to load any value. That thread does not exist in this process, so waiting for it would never end.
    Forked,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle(path) => write!(f, "it needs itself to load: {}", path.join(" -> ")),
            Self::Panicked(message) => write!(f, "it panicked: {message}"),
            Self::Forked => {
                f.write_str("a thread of the parent process was loading a value at the time of the fork")
            }
        }
    }
}

/// The state of a cell, as reports show it.
pub(crate) enum Stage<E> {
    NotLoaded,
    Loading { elapsed: Duration },
    Loaded { took: Duration },
    Failed(Arc<E>),
}

/// The state of a cell, shared by the threads that load it.
enum Progress<E> {
    NotLoaded,
    Loading { attempt: Arc<Attempt>, result: SharedResult<E> },
    Loaded,
    Failed(Failure<E>),
}

/// The outcome of the last attempt, if it failed and the cell shows it. It stays beyond its time until the
/// next attempt, for reports.
struct Failure<E> {
    /// Shared, so that no `clone` of a plugin's error runs while a lock is held.
    error: Arc<E>,
    /// When the attempt ended, and how long uses return its error from then on. `None`: until `retry`.
    expires: Option<(Clock, Duration)>,
}

impl<E> Failure<E> {
    fn is_expired(&self) -> bool {
        self.expires.is_some_and(|(since, time)| since.elapsed() >= time)
    }
}

/// The outcome of an attempt, for the threads that wait for it. It stays empty if the attempt ended by a
/// panic.
type SharedResult<E> = Arc<OnceLock<Result<(), Arc<E>>>>;

impl<T, E: Clone> OnceLoad<T, E> {
    /// An empty cell that remembers a failure: every later use returns the same error, until
    /// [`retry`](Self::retry).
    #[must_use]
    pub const fn new() -> Self {
        Self::remembering(|_| Remember::UntilRetry)
    }

    /// An empty cell that forgets failures: the next use tries again.
    #[must_use]
    pub const fn forgetting_failures() -> Self {
        Self::remembering(|_| Remember::Never)
    }

    /// An empty cell that remembers each failure as long as `remember` says, which runs with no lock held.
    pub(crate) const fn remembering(remember: fn(&E) -> Remember) -> Self {
        Self { value: OnceLock::new(), progress: Mutex::new(Progress::NotLoaded), remember }
    }

    /// The value, if it is loaded. Takes no lock.
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        self.value.get().map(|loaded| &loaded.value)
    }

    /// Returns the value. If it is not loaded yet, runs `load` on this thread, or blocks while another thread
    /// does.
    ///
    /// `name` is the group and the name of the value, as errors show a cycle.
    ///
    /// # Errors
    ///
    /// Returns the error of `load`, or the one that `interrupted` makes of a cycle, a panic or a fork. A
    /// failure whose only cause is a cycle through a value that is still loading is never remembered.
    ///
    /// # Panics
    ///
    /// Panics if `interrupted` panics. The cell then remembers no failure.
    pub fn get_or_load(
        &self,
        name: (&'static str, &str),
        load: impl FnOnce() -> Result<T, E>,
        interrupted: impl FnOnce(Interrupted) -> E,
    ) -> Result<&T, E> {
        self.run(name, load, interrupted, false)
    }

    /// Like [`get_or_load`](Self::get_or_load), but tries again if loading failed before, however long ago.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`get_or_load`](Self::get_or_load).
    pub fn retry(
        &self,
        name: (&'static str, &str),
        load: impl FnOnce() -> Result<T, E>,
        interrupted: impl FnOnce(Interrupted) -> E,
    ) -> Result<&T, E> {
        self.run(name, load, interrupted, true)
    }

    /// The state of the cell. Takes no lock if the value is loaded, and never waits until it is.
    pub(crate) fn stage(&self) -> Stage<E> {
        let loaded = || self.value.get().map(|loaded| Stage::Loaded { took: loaded.took });
        loaded().unwrap_or_else(|| match self.progress.lock().as_deref() {
            Ok(Progress::NotLoaded) => Stage::NotLoaded,
            Ok(Progress::Loading { attempt, .. }) => Stage::Loading { elapsed: attempt.since.elapsed() },
            Ok(Progress::Loaded) => loaded().expect("a loaded cell has a value"),
            Ok(Progress::Failed(failure)) => Stage::Failed(Arc::clone(&failure.error)),
            // At the time of a fork, a thread of the parent process held the lock.
            Err(Orphaned) => Stage::Loading { elapsed: Duration::ZERO },
        })
    }

    fn run(
        &self,
        name: (&'static str, &str),
        load: impl FnOnce() -> Result<T, E>,
        interrupted: impl FnOnce(Interrupted) -> E,
        retry: bool,
    ) -> Result<&T, E> {
        let this_thread = this_thread();
        let (attempt, result) = loop {
            if let Some(value) = self.get() {
                return Ok(value);
            }
            match self.begin_or_join(this_thread, name, retry).unwrap_or(Turn::Forked) {
                Turn::Mine(attempt, result) => break (attempt, result),
                Turn::Over(ended) => return ended.map(|()| self.loaded()).map_err(|error| E::clone(&error)),
                Turn::Cycle(path) => return Err(interrupted(Interrupted::Cycle(path))),
                Turn::Forked => return Err(interrupted(Interrupted::Forked)),
                // The attempt that this thread waited for ended by a panic and has no outcome.
                Turn::Again => {}
            }
        };

        // No lock is held while `load` runs, and it shares no state of this cell: a panic leaves the cell
        // consistent.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let loaded = catch_unwind(AssertUnwindSafe(load));
            loaded
                .unwrap_or_else(|panic| Err(interrupted(Interrupted::Panicked(panic_message(panic).into()))))
        }));
        let outcome = match outcome {
            Ok(outcome) => outcome.map_err(Arc::new),
            Err(panic) => {
                self.end(&attempt, Progress::NotLoaded, true);
                resume_unwind(panic);
            }
        };
        let took = attempt.since.elapsed();
        let ended = outcome.map(|value| {
            assert!(self.value.set(Loaded { value, took }).is_ok(), "a cell is loaded once");
        });
        let _ = result.set(ended.clone());
        let progress = match &ended {
            Ok(()) => Progress::Loaded,
            Err(error) => match (self.remember)(error) {
                Remember::Never => Progress::NotLoaded,
                Remember::UntilRetry => Progress::Failed(Failure { error: Arc::clone(error), expires: None }),
                Remember::For(time) => Progress::Failed(Failure {
                    error: Arc::clone(error),
                    expires: Some((Clock::now(), time)),
                }),
            },
        };
        self.end(&attempt, progress, ended.is_err());
        match ended {
            Ok(()) => Ok(self.loaded()),
            Err(shared) => {
                let error = E::clone(&shared);
                // These are the last references if the failure is forgotten.
                drop_isolated((shared, result));
                Err(error)
            }
        }
    }

    /// Begins an attempt, or waits for the one that is running, or finds the outcome of an earlier one.
    fn begin_or_join(
        &self,
        this_thread: ThreadId,
        (group, name): (&'static str, &str),
        retry: bool,
    ) -> Result<Turn<E>, Orphaned> {
        // The order of locks is the graph, then a cell.
        let mut graph = GRAPH.lock()?;
        let mut progress = self.progress.lock()?;
        match &*progress {
            Progress::NotLoaded => {}
            Progress::Failed(failure) if retry || failure.is_expired() => {}
            Progress::Failed(failure) => return Ok(Turn::Over(Err(Arc::clone(&failure.error)))),
            Progress::Loaded => return Ok(Turn::Over(Ok(()))),
            Progress::Loading { attempt, .. } if attempt.is_orphaned(this_thread) => return Err(Orphaned),
            Progress::Loading { attempt, result } => {
                let attempt = Arc::clone(attempt);
                let result = Arc::clone(result);
                drop(progress);
                return Ok(match wait(graph, this_thread, &attempt) {
                    Ok(()) => result.get().map_or(Turn::Again, |result| Turn::Over(result.clone())),
                    Err(path) => Turn::Cycle(path),
                });
            }
        }
        let attempt = Arc::new(Attempt::new(group, name, this_thread));
        let result = SharedResult::default();
        let loading = Progress::Loading { attempt: Arc::clone(&attempt), result: Arc::clone(&result) };
        let before = std::mem::replace(&mut *progress, loading);
        graph.begin(&attempt);
        drop(progress);
        drop(graph);
        drop_isolated(before);
        Ok(Turn::Mine(attempt, result))
    }

    /// Ends this thread's innermost attempt. Forgets a failure that may come from a cycle through an outer
    /// attempt.
    fn end(&self, attempt: &Arc<Attempt>, progress: Progress<E>, failed: bool) {
        // `load` may have forked. In the child no thread waits for this attempt, which is orphaned for all
        // other threads.
        let Ok(mut graph) = GRAPH.lock() else { return };
        let caught_in_a_cycle = graph.end(attempt, failed);
        let progress = if caught_in_a_cycle { Progress::NotLoaded } else { progress };
        let before = self.progress.lock().map(|mut held| std::mem::replace(&mut *held, progress));
        attempt.finished.notify_all();
        drop(graph);
        drop_isolated(before);
    }

    fn loaded(&self) -> &T {
        self.get().expect("a loaded cell has a value")
    }
}

impl<T, E: Clone> Default for OnceLoad<T, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug, E> fmt::Debug for OnceLoad<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceLoad").field(&self.value.get().map(|loaded| &loaded.value)).finish()
    }
}

/// The next step of a thread that wants the value of a cell.
enum Turn<E> {
    Mine(Arc<Attempt>, SharedResult<E>),
    Over(Result<(), Arc<E>>),
    Cycle(Arc<[String]>),
    Forked,
    Again,
}

/// Drops a plugin's error outside of all locks. Its `drop` may load entry points, or panic.
fn drop_isolated<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        let message = panic_message(panic);
        // The program's logger may panic too.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            log::error!("a plugin's error panicked while it was dropped: {message}");
        }));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::sync::pass;

    /// Fails the test instead of hanging it.
    fn within_a_minute(body: impl FnOnce() + Send + 'static) {
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            body();
            done.send(())
        });
        ended.recv_timeout(Duration::from_secs(60)).expect("the body neither hangs nor panics");
    }

    fn text(cause: Interrupted) -> String {
        cause.to_string()
    }

    #[test]
    fn an_error_whose_drop_loads_another_cell_does_not_deadlock() {
        // Never loaded, so that every drop takes the locks.
        static OTHER: OnceLoad<u8, String> = OnceLoad::forgetting_failures();
        static CELL: OnceLoad<u8, Loads> = OnceLoad::new();
        #[derive(Clone)]
        struct Loads;
        impl Drop for Loads {
            fn drop(&mut self) {
                OTHER.get_or_load(("test", "other"), || Err("no".to_owned()), text).unwrap_err();
            }
        }
        within_a_minute(|| {
            let load = || Err(Loads);
            assert!(CELL.get_or_load(("test", "cell"), load, |_| Loads).is_err());
            assert!(CELL.retry(("test", "cell"), load, |_| Loads).is_err());
            assert_eq!(CELL.retry(("test", "cell"), || Ok(2), |_| Loads).ok(), Some(&2));
        });
    }

    #[test]
    fn an_error_whose_drop_panics_leaves_the_cell_usable() {
        static CELL: OnceLoad<u8, Panics> = OnceLoad::new();
        static DROPS: AtomicUsize = AtomicUsize::new(0);
        #[derive(Clone)]
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                DROPS.fetch_add(1, Ordering::SeqCst);
                panic!("on purpose");
            }
        }
        within_a_minute(|| {
            // The caller owns the error, and would run its `drop`.
            std::mem::forget(CELL.get_or_load(("test", "cell"), || Err(Panics), |_| Panics));
            assert_eq!(CELL.retry(("test", "cell"), || Ok(1), |_| Panics).ok(), Some(&1));
            assert_eq!(DROPS.load(Ordering::SeqCst), 1);
        });
    }

    #[test]
    fn a_panic_in_interrupted_propagates_and_leaves_the_cell_usable() {
        static CELL: OnceLoad<u8, String> = OnceLoad::new();
        within_a_minute(|| {
            let failed = catch_unwind(|| {
                CELL.get_or_load(("test", "cell"), || panic!("load"), |_| panic!("interrupted"))
            });
            assert_eq!(panic_message(failed.unwrap_err()), "interrupted");
            assert_eq!(CELL.get_or_load(("test", "cell"), || Ok(1), text), Ok(&1));
        });
    }

    #[test]
    fn a_forgotten_error_that_panics_on_drop_leaves_the_cell_usable() {
        static CELL: OnceLoad<u8, Rude> = OnceLoad::forgetting_failures();
        struct Rude(bool);
        impl Clone for Rude {
            fn clone(&self) -> Self {
                Self(false)
            }
        }
        impl Drop for Rude {
            fn drop(&mut self) {
                assert!(!self.0, "on purpose");
            }
        }
        within_a_minute(|| {
            assert!(CELL.get_or_load(("test", "cell"), || Err(Rude(true)), |_| Rude(false)).is_err());
            assert_eq!(CELL.get_or_load(("test", "cell"), || Ok(1), |_| Rude(false)).ok(), Some(&1));
        });
    }

    const A_SECOND: Duration = Duration::from_secs(1);
    const ALMOST: Duration = Duration::from_millis(999);

    #[test]
    fn a_failure_is_remembered_as_long_as_the_rule_of_the_cell_says() {
        let by_text = |error: &String| match error.as_str() {
            "for ever" => Remember::UntilRetry,
            "for a second" => Remember::For(A_SECOND),
            _ => Remember::Never,
        };
        let loads = AtomicUsize::new(0);
        // How often the loading code has run: at once, almost a second later, a second later and at a retry.
        let runs = |kind: &str| {
            let cell: OnceLoad<u8, String> = OnceLoad::remembering(by_text);
            let load = || {
                loads.fetch_add(1, Ordering::Relaxed);
                Err(kind.to_owned())
            };
            let run = |time, retry: bool| {
                pass(time);
                let before = loads.load(Ordering::Relaxed);
                let error = if retry {
                    cell.retry(("test", "cell"), load, text)
                } else {
                    cell.get_or_load(("test", "cell"), load, text)
                };
                assert_eq!(error, Err(kind.to_owned()));
                loads.load(Ordering::Relaxed) - before
            };
            assert_eq!(run(Duration::ZERO, false), 1, "{kind}");
            let later = [run(Duration::ZERO, false), run(ALMOST, false), run(A_SECOND - ALMOST, false)];
            (later, run(Duration::ZERO, true))
        };
        assert_eq!(runs("for ever"), ([0, 0, 0], 1));
        assert_eq!(runs("for a second"), ([0, 0, 1], 1));
        assert_eq!(runs("not at all"), ([1, 1, 1], 1));
    }

    #[test]
    fn the_time_of_a_failure_begins_when_its_attempt_ends() {
        let cell: OnceLoad<u8, String> = OnceLoad::remembering(|_| Remember::For(A_SECOND));
        let slow = || {
            pass(A_SECOND * 5);
            Err("slow".to_owned())
        };
        assert!(cell.get_or_load(("test", "cell"), slow, text).is_err());
        pass(ALMOST);
        let error = cell.get_or_load(("test", "cell"), || unreachable!("the failure is remembered"), text);
        assert_eq!(error, Err("slow".to_owned()));
        pass(A_SECOND - ALMOST);
        assert_eq!(cell.get_or_load(("test", "cell"), || Ok(1), text), Ok(&1));
    }

    #[test]
    fn a_failure_whose_time_is_over_stays_in_reports_until_the_next_use() {
        let cell: OnceLoad<u8, String> = OnceLoad::remembering(|_| Remember::For(A_SECOND));
        assert!(cell.get_or_load(("test", "cell"), || Err("no".to_owned()), text).is_err());
        pass(A_SECOND * 100);
        assert!(matches!(cell.stage(), Stage::Failed(error) if *error == "no"));
    }

    #[test]
    fn a_failure_from_a_cycle_is_forgotten_at_once_whatever_the_rule() {
        static OUTER: OnceLoad<u8, String> = OnceLoad::remembering(|_| Remember::For(A_SECOND));
        static INNER: OnceLoad<u8, String> = OnceLoad::remembering(|_| Remember::For(A_SECOND));
        fn outer() -> Result<u8, String> {
            OUTER.get_or_load(("test", "outer"), || Ok(inner().map_or(1, |inner| inner)), text).copied()
        }
        fn inner() -> Result<u8, String> {
            INNER.get_or_load(("test", "inner"), || Ok(outer()? + 1), text).copied()
        }
        assert_eq!((outer(), inner()), (Ok(1), Ok(2)), "no time passes between the two");
    }

    #[test]
    fn a_cycle_is_shown_from_where_it_begins() {
        static OUTER: OnceLoad<u8, String> = OnceLoad::new();
        static A: OnceLoad<u8, String> = OnceLoad::new();
        static B: OnceLoad<u8, String> = OnceLoad::new();
        fn a() -> Result<u8, String> {
            A.get_or_load(("test", "a"), b, text).copied()
        }
        fn b() -> Result<u8, String> {
            B.get_or_load(("test", "b"), a, text).copied()
        }
        within_a_minute(|| {
            let error = OUTER.get_or_load(("test", "outer"), a, text).unwrap_err();
            assert_eq!(error, "it needs itself to load: a -> b -> a");
        });
    }

    #[test]
    fn a_cell_that_recovers_from_a_cycle_does_not_pass_it_on() {
        static OUTER: OnceLoad<u8, String> = OnceLoad::new();
        static INNER: OnceLoad<u8, String> = OnceLoad::new();
        static LOADS: AtomicUsize = AtomicUsize::new(0);
        fn middle() -> Result<u8, String> {
            static MIDDLE: OnceLoad<u8, String> = OnceLoad::new();
            // The inner cell recovers from the cycle, so that the failure of the middle cell is its own.
            let inner = || Ok(OUTER.get_or_load(("test", "outer"), || Ok(0), text).map_or(7, |value| *value));
            let load = || {
                LOADS.fetch_add(1, Ordering::SeqCst);
                assert_eq!(INNER.get_or_load(("test", "inner"), inner, text), Ok(&7));
                Err("its own".to_owned())
            };
            MIDDLE.get_or_load(("test", "middle"), load, text).copied()
        }
        within_a_minute(|| {
            let outer = || Ok(middle().map_or(1, |value| value));
            assert_eq!(OUTER.get_or_load(("test", "outer"), outer, text), Ok(&1));
            // The failure is remembered. It would be forgotten if the inner cell passed the cycle on.
            assert_eq!(middle(), Err("its own".to_owned()));
            assert_eq!(LOADS.load(Ordering::SeqCst), 1);
        });
        assert!(
            GRAPH.lock().unwrap().threads.iter().all(|thread| !thread.running.is_empty()),
            "idle threads are forgotten"
        );
    }
}
