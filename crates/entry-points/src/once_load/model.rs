//! Models of threads that load cells. Loom tries every interleaving: a deadlock or a lost wake-up fails the
//! model.
//!
//! The models use loom, since shuttle only samples interleavings. They are small enough to try all of them;
//! the largest tries those with few preemptions. `sync/of_loom.rs` adds the `const` constructors and the
//! `OnceLock` that loom does not have, and `lazy_static` makes the graph. A load panics by `resume_unwind`,
//! so that no panic hook prints.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;

use super::*;
use crate::sync::model::{in_every_order, with_preemptions};
use crate::sync::pass;

type Cell = OnceLoad<u32, String>;

/// A cell whose loom objects this thread has made.
fn made(cell: Cell) -> Cell {
    assert_eq!(cell.get(), None);
    cell
}

fn text(cause: Interrupted) -> String {
    cause.to_string()
}

fn panic() -> ! {
    resume_unwind(Box::new("on purpose"))
}

const PANICKED: &str = "it panicked: on purpose";

#[test]
fn two_threads_load_one_cell_once_and_both_get_its_value() {
    in_every_order(|| {
        let cell = Arc::new(made(Cell::new()));
        let loads = Arc::new(AtomicUsize::new(0));
        let load = |cell: &Cell, loads: &AtomicUsize| {
            let load = || Ok(7 + loads.fetch_add(1, Ordering::Relaxed) as u32);
            cell.get_or_load(("model", "cell"), load, text).copied()
        };
        let other = {
            let cell = Arc::clone(&cell);
            let loads = Arc::clone(&loads);
            thread::spawn(move || load(&cell, &loads))
        };
        assert_eq!(load(&cell, &loads), Ok(7));
        assert_eq!(other.join().unwrap(), Ok(7));
        assert_eq!(cell.get(), Some(&7));
        assert_eq!(loads.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_cell_in_the_stage_loaded_has_its_value() {
    in_every_order(|| {
        let cell = Arc::new(made(Cell::new()));
        let loader = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || cell.get_or_load(("model", "cell"), || Ok(7), text).copied())
        };
        if matches!(cell.stage(), Stage::Loaded { .. }) {
            assert_eq!(cell.get(), Some(&7));
        }
        assert_eq!(loader.join().unwrap(), Ok(7));
    });
}

#[test]
fn a_waiting_thread_gets_the_outcome_of_the_attempt_that_it_waited_for() {
    in_every_order(|| {
        let cell = Arc::new(made(Cell::forgetting_failures()));
        let attempts = Arc::new(AtomicUsize::new(0));
        // The first attempt fails, and the cell forgets it before the waiting threads read its outcome.
        let load = |cell: &Cell, attempts: &AtomicUsize| {
            let mine = std::cell::Cell::new(false);
            let load = || {
                mine.set(true);
                match attempts.fetch_add(1, Ordering::Relaxed) {
                    0 => Err("first".to_owned()),
                    n => Ok(n as u32),
                }
            };
            let outcome = cell.get_or_load(("model", "cell"), load, text).copied();
            (mine.get(), outcome)
        };
        let others: Vec<_> = (0..2)
            .map(|_| {
                let cell = Arc::clone(&cell);
                let attempts = Arc::clone(&attempts);
                thread::spawn(move || load(&cell, &attempts))
            })
            .collect();
        let mut outcomes = vec![load(&cell, &attempts)];
        outcomes.extend(others.into_iter().map(|other| other.join().unwrap()));
        let first = Err("first".to_owned());
        let of_loaders: Vec<_> =
            outcomes.iter().filter(|(mine, _)| *mine).map(|(_, outcome)| outcome).collect();
        // One outcome for each attempt.
        assert!(of_loaders.contains(&&first) && of_loaders.len() <= 2, "{outcomes:?}");
        assert_eq!(attempts.load(Ordering::Relaxed), of_loaders.len());
        for (_, outcome) in &outcomes {
            assert!(of_loaders.contains(&outcome), "{outcomes:?}");
        }
    });
}

#[test]
fn a_remembered_failure_is_the_same_for_all_threads_and_loads_once() {
    in_every_order(|| {
        let cell = Arc::new(made(Cell::new()));
        let loads = Arc::new(AtomicUsize::new(0));
        let load = |cell: &Cell, loads: &AtomicUsize| {
            let load = || Err(format!("attempt {}", loads.fetch_add(1, Ordering::Relaxed)));
            cell.get_or_load(("model", "cell"), load, text).copied()
        };
        let other = {
            let cell = Arc::clone(&cell);
            let loads = Arc::clone(&loads);
            thread::spawn(move || load(&cell, &loads))
        };
        let failure = Err("attempt 0".to_owned());
        assert_eq!(load(&cell, &loads), failure);
        assert_eq!(other.join().unwrap(), failure);
    });
}

#[test]
fn a_failure_whose_time_is_over_is_loaded_again_once_for_all_threads() {
    const TIME: Duration = Duration::from_secs(1);
    for succeeds in [false, true] {
        in_every_order(move || {
            let cell = Arc::new(made(Cell::remembering(|_| Remember::For(TIME))));
            let loads = Arc::new(AtomicUsize::new(0));
            let load = move |cell: &Cell, loads: &AtomicUsize| {
                let load = || match loads.fetch_add(1, Ordering::Relaxed) {
                    1 if succeeds => Ok(1),
                    attempt => Err(format!("attempt {attempt}")),
                };
                cell.get_or_load(("model", "cell"), load, text).copied()
            };
            assert_eq!(load(&cell, &loads), Err("attempt 0".to_owned()));
            pass(TIME);
            let other = {
                let cell = Arc::clone(&cell);
                let loads = Arc::clone(&loads);
                thread::spawn(move || load(&cell, &loads))
            };
            let again = if succeeds { Ok(1) } else { Err("attempt 1".to_owned()) };
            assert_eq!(load(&cell, &loads), again);
            assert_eq!(other.join().unwrap(), again);
            assert_eq!(loads.load(Ordering::Relaxed), 2);
        });
    }
}

#[test]
fn a_load_that_panics_is_an_error_for_the_thread_that_waits() {
    in_every_order(|| {
        let cell = Arc::new(made(Cell::new()));
        let load = |cell: &Cell| cell.get_or_load(("model", "cell"), || panic(), text).copied();
        let other = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || load(&cell))
        };
        assert_eq!(load(&cell), Err(PANICKED.to_owned()));
        assert_eq!(other.join().unwrap(), Err(PANICKED.to_owned()));
    });
}

#[test]
fn a_thread_that_waits_for_an_attempt_without_an_outcome_begins_its_own() {
    in_every_order(|| {
        let cell = Arc::new(made(Cell::new()));
        let other = {
            let cell = Arc::clone(&cell);
            // `interrupted` panics too, so that the attempt ends without an outcome.
            thread::spawn(move || {
                let load = || cell.get_or_load(("model", "cell"), || panic(), |_| panic()).copied();
                catch_unwind(AssertUnwindSafe(load)).ok()
            })
        };
        assert_eq!(cell.get_or_load(("model", "cell"), || Ok(7), text), Ok(&7));
        // The other thread gets the value if it comes second.
        assert!(matches!(other.join().unwrap(), None | Some(Ok(7))));
        assert_eq!(cell.get(), Some(&7));
    });
}

#[test]
fn a_retry_while_another_thread_loads_joins_that_attempt_or_begins_its_own() {
    in_every_order(|| {
        let cell = Arc::new(made(Cell::new()));
        let other = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || cell.get_or_load(("model", "cell"), || Err("no".to_owned()), text).copied())
        };
        let retried = cell.retry(("model", "cell"), || Ok(7), text).copied();
        let loaded = other.join().unwrap();
        let no = Err("no".to_owned());
        match (&retried, &loaded) {
            // The retry waited for the failure, or the load for the retry, or the retry came after the
            // failure.
            (Err(_), Err(_)) => assert_eq!((retried, loaded, cell.get()), (no.clone(), no, None)),
            (Ok(7), Ok(7) | Err(_)) => assert_eq!(cell.get(), Some(&7)),
            other => panic!("{other:?}"),
        }
    });
}

/// Two cells, each of which needs the other.
struct Pair {
    left: Cell,
    right: Cell,
    loads: AtomicUsize,
}

impl Pair {
    fn new() -> Self {
        Self { left: made(Cell::new()), right: made(Cell::new()), loads: AtomicUsize::new(0) }
    }

    fn left(&self) -> Result<u32, String> {
        let load = || {
            self.loads.fetch_add(1, Ordering::Relaxed);
            self.right()
        };
        self.left.get_or_load(("model", "left"), load, text).copied()
    }

    fn right(&self) -> Result<u32, String> {
        let load = || {
            self.loads.fetch_add(1, Ordering::Relaxed);
            self.left()
        };
        self.right.get_or_load(("model", "right"), load, text).copied()
    }
}

fn is_cycle<T>(outcome: &Result<T, String>) -> bool {
    let ways = ["left -> right -> left", "right -> left -> right"];
    let error = outcome.as_ref().err().map_or("", String::as_str);
    ways.iter().any(|way| error == format!("it needs itself to load: {way}"))
}

#[test]
fn two_cells_that_need_each_other_fail_on_both_threads_and_hang_on_none() {
    in_every_order(|| {
        let pair = Arc::new(Pair::new());
        let other = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || pair.right())
        };
        let outcomes = [pair.left(), other.join().unwrap()];
        assert!(outcomes.iter().all(is_cycle), "{outcomes:?}");
    });
}

#[test]
fn a_cell_that_recovers_from_the_cycle_is_loaded_for_both_threads() {
    in_every_order(|| {
        let pair = Arc::new(Pair::new());
        // The right cell recovers from a failure of the left one.
        fn right(pair: &Pair) -> Result<u32, String> {
            let load = || Ok(left(pair).map_or(1, |left| left + 10));
            pair.right.get_or_load(("model", "right"), load, text).copied()
        }
        fn left(pair: &Pair) -> Result<u32, String> {
            pair.left.get_or_load(("model", "left"), || right(pair), text).copied()
        }
        let other = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || right(&pair))
        };
        let from_left = left(&pair);
        let from_right = other.join().unwrap();
        // The thread that closes the cycle gets the error. The right cell is loaded in any case.
        assert_eq!(pair.right.get(), from_right.as_ref().ok());
        assert_eq!(from_right, Ok(1));
        assert!(from_left == Ok(1) || is_cycle(&from_left), "{from_left:?}");
    });
}

#[test]
fn a_failure_that_comes_only_from_the_cycle_is_forgotten() {
    in_every_order(|| {
        let pair = Arc::new(Pair::new());
        let other = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || pair.right())
        };
        let outcomes = [pair.left(), other.join().unwrap()];
        assert!(outcomes.iter().all(is_cycle), "{outcomes:?}");
        let remembered = [&pair.left, &pair.right].map(|cell| matches!(cell.stage(), Stage::Failed(_)));
        let expected = match pair.loads.load(Ordering::Relaxed) {
            // The cycle led back from the inner one to the outer one.
            2 => 1,
            // The outer cell had failed by itself when the inner one was loaded again.
            3 => 2,
            loads => panic!("{loads} loads"),
        };
        assert_eq!(remembered.iter().filter(|remembered| **remembered).count(), expected);
        assert!(GRAPH.lock().unwrap().threads.is_empty(), "idle threads are forgotten");
    });
}

#[test]
fn three_cells_that_need_each_other_in_a_ring_hang_no_thread() {
    // Without a bound it takes minutes.
    with_preemptions(Some(2), || {
        fn load(ring: &[Cell; 3], at: usize) -> Result<u32, String> {
            let name = ["a", "b", "c"][at];
            ring[at].get_or_load(("model", name), || load(ring, (at + 1) % 3), text).copied()
        }
        let ring = Arc::new([(); 3].map(|()| made(Cell::new())));
        let others = [1, 2].map(|at| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || load(&ring, at))
        });
        assert!(load(&ring, 0).unwrap_err().contains(" -> "));
        for other in others {
            assert!(other.join().unwrap().unwrap_err().contains(" -> "));
        }
    });
}

#[test]
fn cells_that_one_thread_needs_and_another_loads_are_no_cycle() {
    in_every_order(|| {
        let pair = Arc::new(Pair::new());
        let right = |pair: &Pair| pair.right.get_or_load(("model", "right"), || Ok(1), text).copied();
        let other = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || right(&pair))
        };
        let left = pair.left.get_or_load(("model", "left"), || Ok(right(&pair)? + 1), text).copied();
        assert_eq!((left, other.join().unwrap()), (Ok(2), Ok(1)));
    });
}
